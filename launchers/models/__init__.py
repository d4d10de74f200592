"""A plan's transformers model: its class, its weights, and what the atoms change in it."""
