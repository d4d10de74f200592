"""What people read of run folders: tables beside the paper's, pictures, and the comparison of two runs."""
