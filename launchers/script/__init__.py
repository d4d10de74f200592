"""engine=script, a user's own training program: engine.py plans a run, worker.py is the program of one rank."""
