"""The program of a benchmark's rank: it runs blocks of steps in turn and measures the CPU time of each.

The blocks are those of one engine through llmexp's loop and a bare one, or those of several engines. Arguments are the
folder for blocks.<rank>.json, the number of rounds, the steps a block, and one or more plans.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import distributed

from benchmarks.bare import STEPS
from llmexp.launchers.data import loader
from llmexp.launchers.rank.frame import device_of
from llmexp.launchers.rank.meeting import serve_store
from llmexp.launchers.training.engine_kinds import RankEngine
from llmexp.measure import memory
from llmexp.measure.clock import clock_for
from llmexp.measure.loop import StepLoop
from llmexp.training.plan.training_plan import TrainingPlan

Block = Callable[[], None]


def measure(plans: Sequence[TrainingPlan], folder: Path, rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the CPU seconds of this rank's blocks.

    With one plan they are `ours` and `bare`, else those of llmexp's loop by engine.
    """
    device = device_of(plans[0].config.hardware, int(os.environ["LOCAL_RANK"]))
    # In the command the engine's worker precedes the folder.
    launchers = [importlib.import_module(plan.command.argv[-2]) for plan in plans]
    _join(launchers, device)
    trained = {
        plan.config.engine.name: (plan, launcher.build(plan, device))
        for plan, launcher in zip(plans, launchers, strict=True)
    }
    blocks = {
        name: ours(plan, training, folder / name, rounds * steps, steps) for name, (plan, training) in trained.items()
    }
    if len(plans) == 1:
        ((name, (plan, training)),) = trained.items()
        blocks = {"ours": blocks[name], "bare": bare(plan, training, steps)}
    return _alternate(blocks, rounds)


def ours(plan: TrainingPlan, training: RankEngine, folder: Path, total: int, steps: int) -> Block:
    """Return a block of llmexp's loop: its batches, clocks, phases and samples."""
    device = device_of(plan.config.hardware, int(os.environ["LOCAL_RANK"]))
    rank = distributed.get_rank()
    sequences = loader.load(
        plan.config.data, training.vocab_size, (total + steps) * plan.batch.global_, plan.config.seed
    )
    batches = loader.batches(sequences, rank, plan.dims.dp, plan.batch, device)
    folder.mkdir(exist_ok=True)
    loop = StepLoop(
        training, clock_for(device), (folder / f"samples.{rank}.jsonl").open("w"), memory.current_bytes(device)
    )

    def block() -> None:
        loop.run(batches, range(steps), warmup=False)

    return block


def bare(plan: TrainingPlan, training: RankEngine, steps: int) -> Block:
    """Return a block of the engine's own calls."""
    device = device_of(plan.config.hardware, int(os.environ["LOCAL_RANK"]))
    sequences = loader.load(plan.config.data, training.vocab_size, plan.batch.global_, plan.config.seed)
    (fixed,) = next(loader.batches(sequences, distributed.get_rank(), plan.dims.dp, plan.batch, device))
    step = STEPS[plan.config.engine.name]

    def block() -> None:
        for _ in range(steps):
            step(training, fixed)

    return block


def _join(launchers: Sequence[ModuleType], device: torch.device) -> None:
    """Form the process group once, by the first launcher; DeepSpeed's also joins, and uses that group."""
    for launcher in launchers:
        if not distributed.is_initialized() or launcher.__name__.endswith("deepspeed"):
            launcher.join(device)


def _alternate(blocks: dict[str, Block], rounds: int) -> dict[str, list[float]]:
    """Run all blocks of each round, forwards and backwards in turn, so that none gains by its place."""
    for block in blocks.values():
        block()
    seconds: dict[str, list[float]] = {name: [] for name in blocks}
    for number in range(rounds):
        for name in list(blocks)[:: 1 if number % 2 else -1]:
            distributed.barrier()
            start_s = time.process_time()
            blocks[name]()
            seconds[name].append(time.process_time() - start_s)
    return seconds


def main() -> None:
    """Measure, and write the figures."""
    serve_store()
    folder, rounds, steps, plans = (
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        [TrainingPlan.read(Path(path)) for path in sys.argv[4:]],
    )
    found = measure(plans, folder, rounds, steps)
    (folder / f"blocks.{distributed.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
