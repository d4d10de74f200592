"""The report of task=micro: the machine's limits, a table for each family of points, and curves over sizes."""
