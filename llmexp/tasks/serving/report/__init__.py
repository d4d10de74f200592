"""The part of a report that shows served loads: their table, the distributions of latencies, and who did the same work."""
