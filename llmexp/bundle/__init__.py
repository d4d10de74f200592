"""Bundles: runs' records in one file that another machine reports from, compares with and reproduces."""
