"""The run folder: atomic checkpoints, reading, locking."""
