"""The launcher of engine=torch; worker.py is the program of one rank."""
