"""Judges what advice would have chosen: against the paper's tables, published layouts and published recipes."""
