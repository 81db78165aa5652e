"""Speed, measured against what it could be: `python -m benchmarks [name …]`."""
