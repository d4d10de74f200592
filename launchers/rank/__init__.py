"""What every rank is, whatever it runs: its frame, how it starts and meets the others, what it can say of its environment."""
