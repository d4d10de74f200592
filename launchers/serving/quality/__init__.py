"""Whether a server's answers are those of its weights: it is asked a fixed set, and one process computes the same."""
