"""A sweep of planned runs, from its expected cost to its report.

One run's failure never stops the others, and the folders are the only memory.

run               the whole sweep
cost, budget      what it is expected to take, and which runs a budget allows
runner            the interface of whatever measures the plans: here (this machine, with concurrent_runs for several
                  at a time), cluster (SLURM), or a launcher of another Hydra package (cli.launchers)
measuring         measures one plan, keeps its result, or leaves it to another driver (share); resume gives the reason
alone, allocated  measure one plan in a process of its own, and in a SLURM job
report            prints the table and writes the files
"""
