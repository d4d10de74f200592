"""What spawns runs: a folder for each engine, and folders that engines share.

engine.py is the driver's side: what the engine can do, its native configuration, its command; it reaches no torch.
worker.py is what runs in the ranks: it reads plan.json, runs the loop and records samples, and takes no decisions.
"""
