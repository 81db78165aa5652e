"""Faults and hostile folders: tests of single ones, and a campaign that draws them (`python -m tests.faults`)."""
