"""Claims, each decided by a function over rows: the paper's own and a person's, on the paper's cells and on runs."""
