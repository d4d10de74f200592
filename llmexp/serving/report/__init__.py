"""The report of task=serve: the table of loads, the distributions of latencies, and who did the same work."""
