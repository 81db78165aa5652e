"""cic: unsupervised skill discovery."""

__version__ = "0.1.0"
