"""The words everyone shares: types, errors, strict config."""
