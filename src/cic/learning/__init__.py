"""Agents, objectives, learners and the replay buffer: tensors only, no files and no environments."""
