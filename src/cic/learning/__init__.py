"""What is learned. Tensors only: no files, no environments."""
