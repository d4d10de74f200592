"""The report of runs that trained: their table with its conclusions, and pictures."""
