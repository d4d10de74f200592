"""The report of runs that trained: the paper's table with its conclusions, and pictures."""
