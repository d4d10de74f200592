"""engine=torch: worker.py is what one rank runs."""
