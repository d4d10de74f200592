"""The plan of a run of microbenchmarks: its points, and the limit of each."""
