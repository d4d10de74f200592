"""Statistics of training alone: the search for the largest batch, what a larger batch gains, how ranks scale."""
