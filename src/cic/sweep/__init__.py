"""Plans of many runs as data, and their execution with Ray on this machine or on a cluster."""
