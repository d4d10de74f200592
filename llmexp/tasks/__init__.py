"""What is done and measured: a folder for each task, and what tasks have in common."""
