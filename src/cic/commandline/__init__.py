"""The only package that knows the command line. What is heavy is imported by the command that needs it."""
