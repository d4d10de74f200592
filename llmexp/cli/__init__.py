"""The command line.

It turns words into jobs, jobs into plans, and plans into runs and their report; other commands show what has run.
"""
