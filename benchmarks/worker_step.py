"""Started by torchrun: one engine, blocks of steps through llmexp's loop and through a bare one in turn, and the CPU time of each block.

Arguments: a plan, the folder for blocks.<rank>.json, the number of pairs of blocks, steps a block.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.bare import STEPS
from llmexp.launchers import data
from llmexp.launchers.rank import device_of
from llmexp.measure import memory
from llmexp.measure.clock import clock_for
from llmexp.measure.loop import StepLoop
from llmexp.plan.run_plan import RunPlan


def measure(plan: RunPlan, folder: Path, pairs: int, steps: int) -> dict[str, list[float]]:
    """CPU seconds of this rank's blocks: `ours` with all that a measured step does, `bare` with the engine's calls on one fixed batch."""
    device = device_of(plan.config.hardware, int(os.environ["LOCAL_RANK"]))
    # The engine's worker stands before the folder in its command.
    launcher = importlib.import_module(plan.command.argv[-2])
    launcher.join(device)
    rank, training, bare_step = torch.distributed.get_rank(), launcher.build(plan, device), STEPS[plan.config.engine.name]
    sequences = data.load(plan.config.data, training.vocab_size, pairs * steps, plan.config.seed)
    batches = data.batches(sequences, rank, plan.dims.dp, plan.batch, device)
    (fixed,) = next(batches)

    def bare() -> None:
        for _ in range(steps):
            bare_step(training, fixed)

    with (folder / f"samples.{rank}.jsonl").open("w") as file:
        loop = StepLoop(training, clock_for(device), file, memory.current_bytes(device))

        def ours() -> None:
            loop.run(batches, range(steps), warmup=False)

        return _alternate({"ours": ours, "bare": bare}, pairs)


def _alternate(blocks: dict[str, Callable[[], None]], pairs: int) -> dict[str, list[float]]:
    """Run both blocks of each pair, the first of them in turn, so that neither gains by its place."""
    for block in blocks.values():
        block()
    seconds: dict[str, list[float]] = {name: [] for name in blocks}
    for pair in range(pairs):
        for name in list(blocks)[:: 1 if pair % 2 else -1]:
            torch.distributed.barrier()
            start_s = time.process_time()
            blocks[name]()
            seconds[name].append(time.process_time() - start_s)
    return seconds


def main() -> None:
    """Measure and leave the figures."""
    plan, folder, pairs, steps = RunPlan.read(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    found = measure(plan, folder, pairs, steps)
    (folder / f"blocks.{torch.distributed.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
