"""Training: settings, the loop, the scripts, skill searches, evaluation, logs, progress."""
