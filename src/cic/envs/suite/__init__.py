"""The domains on MuJoCo: one file each with its model, observation and the rewards of all its tasks."""
