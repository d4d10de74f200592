"""Servers of other libraries, run in processes that can profile themselves."""
