"""What does a task's work: a file for each engine, with its native configuration and its command."""
