"""What the ranks of task=micro run: a file for each family of microbenchmarks."""
