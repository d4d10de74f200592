"""engine=megatron: worker.py is what one rank runs."""
