"""Trainings that are really killed, beside the simulation of `llmexp plan --failures`."""
