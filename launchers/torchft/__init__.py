"""Data-parallel training that goes on, or starts again, when replicas are killed."""
