"""Runs as jobs of a SLURM cluster, submitted as arrays; their folders are read first, SLURM is asked second.

The package never imports torch.

options    what a user sets               submit   turns plans into arrays of jobs, through submitit
jobs       which job runs which run       queue    calls SLURM's own commands
finalize   what a job's end means         follow   waits for all jobs
reconcile  takes up runs of other shells  own      tells which jobs belong to a sweep
board      the live table of jobs         advance  the steps and rates in it
"""
