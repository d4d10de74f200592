"""A sweep of planned runs, from what it may cost to its report: one run's failure never stops the others, and the folders are the only memory.

run        the whole of it        cost, budget  what it may take        report  what it leaves
runner     who measures the plans: here (in turn, or side_by_side), cluster (SLURM), or a launcher of another package of Hydra's (cli.launchers)
measuring  one plan: kept, measured or held by another driver (share); resume says why
alone, allocated  the same in a process of its own, and in a SLURM job
"""
