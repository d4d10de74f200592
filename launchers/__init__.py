"""Code that runs inside the spawned job: a package for each engine, and packages that engines share.

It reads plan.json, builds the model, runs the training loop and records samples. It takes no decisions.
"""
