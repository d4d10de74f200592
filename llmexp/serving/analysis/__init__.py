"""What requests say together: latencies, the backlog, whether a server kept up with its load, and what it was like."""
