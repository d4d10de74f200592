"""Pure functions from the samples that ranks wrote to the metrics of a result."""
