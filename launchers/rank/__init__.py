"""Code that every rank shares: its frame, its start, its meeting with the others, and its environment."""
