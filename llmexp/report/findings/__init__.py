"""Claims, each decided by a function over rows: published ones and a person's, on published figures and on runs."""
