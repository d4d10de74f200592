"""What llmexp adds to a training step: two ranks, one engine, llmexp's loop and a bare one in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.interval import paired_ratio
from llmexp.cli.arguments import run_parser
from llmexp.cli.run import jobs_of
from llmexp.launch.spawn import environment
from llmexp.record.result import to_json

RANKS, STEPS = 2, 4
# Steps of some 150 ms of CPU: as short as any that people measure, for what is added does not grow with the model.
SHAPE = ("hidden_size=512", "intermediate_size=1376", "num_layers=8", "num_heads=8", "head_dim=64")
WORDS = ("hardware=cpu", f"parallelism.dp={RANKS}", "data=synthetic", "data.seq_len=128", *(f"model.{size}" for size in SHAPE))
ROOT = Path(__file__).parents[1]


def worker_step(folder: Path, engine: str, pairs: int) -> Figure:
    """CPU time of llmexp's step over that of a bare loop of the engine, both ranks together; raises CalledProcessError where the ranks fail."""
    (job,) = jobs_of(run_parser().parse_intermixed_args((*WORDS, f"engine={engine}")))
    folder = folder / engine
    folder.mkdir()
    (folder / "plan.json").write_text(to_json(job.plan))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}", "-m", "benchmarks.worker_step"]
    command = [*torchrun, str(folder / "plan.json"), str(folder), str(pairs), str(STEPS)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (folder / "output.txt").open("w") as output:
        subprocess.run(command, env=environment(job.plan, {"PYTHONPATH": path}), stdout=output, stderr=output, check=True)
    blocks = [json.loads((folder / f"blocks.{rank}.json").read_text()) for rank in range(RANKS)]
    ours, bare = ([sum(block) for block in zip(*(rank[name] for rank in blocks), strict=True)] for name in ("ours", "bare"))
    return Figure(f"worker step over a bare loop, {engine}", "x", paired_ratio(ours, bare), pairs, limit=1.01)
