"""engine=micro: engine.py plans a run, worker.py is a rank's program; a file for each family of microbenchmarks."""
