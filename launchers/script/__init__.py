"""engine=script, a training program of somebody's: worker.py is what one rank runs."""
