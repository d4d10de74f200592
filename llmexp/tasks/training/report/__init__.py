"""How a report shows runs that trained: the paper's table, what it concludes, and its pictures."""
