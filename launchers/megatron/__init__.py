"""The launcher of engine=megatron; worker.py is the program of one rank."""
