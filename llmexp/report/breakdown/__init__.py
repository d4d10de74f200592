"""Where the time of a step went, as tables and pictures of a run's breakdown."""
