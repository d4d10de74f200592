"""The task micro: what this machine can do at most, measured point by point."""
