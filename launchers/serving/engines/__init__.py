"""A file for each server: what it can do, and its command line."""
