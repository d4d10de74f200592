"""A rank as launchers/ makes them, under the real launchers.

Rank 0 waits in a collective that rank 1 never comes to.
"""

import time
from datetime import timedelta

from llmexp.launchers.training.frame import train


def work(plan, rank):
    import torch.distributed as dist

    print("torch is there", flush=True)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    dist.barrier()
    rank.samples_path.touch()
    if rank.index == 1:
        stay_away()
    dist.barrier()


def stay_away():
    time.sleep(1000)


train(work)
