"""Reports on run folders: tables beside the paper's, pictures, and the comparison of two runs."""
