"""Reports on run folders: tables, pictures, and the comparison of two runs."""
