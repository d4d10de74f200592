"""engine=deepspeed: worker.py is what one rank runs."""
