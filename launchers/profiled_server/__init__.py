"""Servers of other libraries in processes of ours, which ask for a key and can profile themselves."""
