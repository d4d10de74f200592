"""Trackers: copies of run folders that can be made again from them at any time.

content     describes a run's folder in the terms that trackers share; MLflow's room reads it too
points      turns a run's metrics into points
choices     says what was chosen for a run
kept        finds the weights that it kept
spans       finds what its traces show
files       finds what can be copied
run_tracker is what a tracker beside MLflow is, and a run as it gets it
tensorboard and wandb are such trackers; llmexp.registry has their names, and those of other packages
copied      says where a copy lies and what it is of, and puts it there
writer      is the process that writes copies
also        has the entry points
"""

from llmexp.record.trackers.also import check_trackers, record_also, sync_also

__all__ = ["check_trackers", "record_also", "sync_also"]
