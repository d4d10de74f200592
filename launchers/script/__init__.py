"""The launcher of engine=script, a user's own training program; worker.py is the program of one rank."""
