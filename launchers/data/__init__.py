"""What the ranks read, from texts and records by way of tokens to the passes of each step."""
