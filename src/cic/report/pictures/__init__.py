"""Trajectory plots, filmstrips and films of an agent."""
