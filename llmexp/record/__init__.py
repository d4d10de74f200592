"""What a run leaves behind: its folder, its result, its environment, and the copy in MLflow."""
