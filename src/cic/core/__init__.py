"""Shared by all packages: types, errors, configuration."""
