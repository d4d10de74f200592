"""What stands beside runs of microbenchmarks: table XII, and figures 11 to 15."""
