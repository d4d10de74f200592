"""A rank under the real launchers: gloo_rank.py <repeat's folder> <behavior>.

Rank 1 goes while rank 0 waits for it in a barrier.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from llmexp.launchers.rank.meeting import serve_store
from llmexp.record.process import die_with_parent

die_with_parent()
serve_store()
dist.init_process_group("gloo", timeout=timedelta(seconds=300))
rank, folder, behavior = dist.get_rank(), Path(sys.argv[1]), sys.argv[2]
dist.barrier()
(folder / f"samples.{rank}.jsonl").touch()
if rank == 1 and behavior == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1 and behavior == "out_of_memory":
    (folder / "failure.1.json").write_text(
        '{"rank": 1, "kind": "oom", "message": "MemoryError: no more", "allocator": {"allocated_bytes": 7}}'
    )
    os._exit(1)
if rank == 1:
    time.sleep(1000)
dist.barrier()
