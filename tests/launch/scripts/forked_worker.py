"""A worker as launchers/ has them, for a fork server.

Rank 0 waits in a barrier for rank 1, which does what BEHAVIOR says.
"""

import os
import signal
import time
from datetime import timedelta

import torch.distributed as dist

from llmexp.launchers.training.frame import train

IMPORTED_BY = os.getpid()


def join(device):
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))


def build(plan, device):
    return None


def run_rank(join, build):
    if (os.environ["BEHAVIOR"], os.environ["RANK"]) == ("broken", "1"):
        raise RuntimeError("broken before it is a rank")
    train(work)


def work(plan, rank):
    join(None)
    dist.barrier()
    print(f"imported by {IMPORTED_BY}, {os.environ['OMP_NUM_THREADS']} threads", flush=True)
    rank.samples_path.touch()
    if rank.index == 1:
        BEHAVIORS[os.environ["BEHAVIOR"]]()
    dist.barrier()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def out_of_memory():
    raise MemoryError("no more")


def abort():
    """As glibc does where a thread's first destructor finds no memory."""
    os.write(2, b"Fatal glibc error: failed to register TLS destructor: out of memory\n")
    os.abort()


def hang():
    time.sleep(1000)


BEHAVIORS = {"killed": killed, "out_of_memory": out_of_memory, "abort": abort, "hang": hang}
