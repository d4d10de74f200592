"""The launcher of engine=deepspeed; worker.py is the program of one rank."""
