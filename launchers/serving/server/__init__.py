"""A server as a process or container of ours, or one that runs somewhere: its start, readiness, log and end."""
