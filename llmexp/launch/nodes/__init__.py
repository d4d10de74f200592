"""A run on several machines: where they meet, what the first one tells the others, and how they take part."""
