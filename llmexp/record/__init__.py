"""The records of a run: its folder, its plan, its result, its environment, and the copy in MLflow."""
