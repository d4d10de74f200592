"""A rank without memory: its code runs with tensors that have no content, and what would live in it is counted."""
