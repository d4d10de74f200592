"""Runs as jobs of a SLURM cluster: submitted as arrays, followed by their folders first and by SLURM second. Never imports torch.

options  what a person sets            submit   plans to arrays of jobs, through submitit
jobs     which job runs which run      queue    SLURM's own commands
settle   what a job's end means        follow   wait for all of them
board    the living table              advance  its steps and rates
"""
