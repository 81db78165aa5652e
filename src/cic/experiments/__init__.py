"""Every table and figure of the paper as one command: a plan, measurements and a figure each (`cic reproduce`)."""
