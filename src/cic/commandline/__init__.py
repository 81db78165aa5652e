"""The command line: one module `command_NAME` per command, on argparse.

A command module defines `run(given: SomeArguments)`, which may return an exit code. The fields of the dataclass
`SomeArguments` are the command's flags, and the docstrings of the fields are their help. The flags of `pretrain` and
`finetune` depend on `--objective` and `--learner`: these modules define `add_arguments(parser, words)` as well, and
their `run` receives the values that were given, by field name.

Importing a command module imports neither torch nor ray nor matplotlib, so that `--help` is fast: `run` imports what
it needs.
"""
