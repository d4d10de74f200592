"""Pure functions that turn the samples of ranks into the metrics of a result."""
