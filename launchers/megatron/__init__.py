"""engine=megatron: engine.py plans a run, worker.py is the program of one rank."""
