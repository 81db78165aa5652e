"""Plans of many runs as data, and their execution: one after another, on this machine's cores, or on a Ray cluster."""
