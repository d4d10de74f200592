"""The task serve: an inference server under loads that are believed."""
