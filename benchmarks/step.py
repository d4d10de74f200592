"""The cost that llmexp adds to a training step, and a comparison of the engines' steps.

Two ranks run blocks of steps in turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.interval import paired_ratio
from llmexp.cli.arguments import run_parser
from llmexp.cli.words import jobs_of
from llmexp.launch.prepare import environment
from llmexp.launch.ranks import LOOPBACK, listening
from llmexp.record.result import to_json
from llmexp.training.plan.training_plan import TrainingPlan

RANKS, STEPS = 2, 4
# A step takes about 150 ms of CPU, as short as any that people measure: the added cost does not grow with the model.
SHAPE = ("hidden_size=512", "intermediate_size=1376", "num_layers=8", "num_heads=8", "head_dim=64")
WORDS = (
    "hardware=cpu",
    f"parallelism.dp={RANKS}",
    "data=synthetic",
    "data.seq_len=128",
    *(f"model.{size}" for size in SHAPE),
)
ROOT = Path(__file__).parents[1]


COMPARED = ("megatron", "deepspeed", "torch")  # in the order in which one process can join them


def worker_step(folder: Path, engine: str, rounds: int, method: str = "Naive") -> Figure:
    """Measure the CPU time of llmexp's step over that of a bare loop, both ranks together.

    The bare loop is the engine's, with atom L that of PEFT and the engine.
    """
    plan = _plan(engine, *(("task=finetune", f"method={method}") if method != "Naive" else ()))
    found = _blocks(folder / plan.id, [plan], rounds)
    told = engine if method == "Naive" else f"{engine} {method}"
    return Figure(
        f"worker step over a bare loop, {told}", "x", paired_ratio(found["ours"], found["bare"]), rounds, limit=1.01
    )


def engine_against_engine(folder: Path, rounds: int) -> Iterator[Figure]:
    """Measure the CPU time of each engine's step over DeepSpeed's, block by block in turn.

    They have the same model, weights, tokens and dtypes, in one process group.
    """
    found = _blocks(folder / "engines", [_plan(engine) for engine in COMPARED], rounds)
    for engine in COMPARED:
        if engine != "deepspeed":
            yield Figure(
                f"step of {engine} over that of deepspeed", "x", paired_ratio(found[engine], found["deepspeed"]), rounds
            )


def _blocks(folder: Path, plans: Sequence[TrainingPlan], rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of all ranks together, block by block."""
    folder.mkdir()
    for plan in plans:
        (folder / f"{plan.id}.json").write_text(to_json(plan))
    with listening(LOOPBACK, 0) as probe:
        port = str(probe.getsockname()[1])
    start = [
        sys.executable,
        "-m",
        "llmexp.launch.ranks",
        str(RANKS),
        "0",
        "1",
        LOOPBACK,
        port,
        "-m",
        "benchmarks.worker_step",
    ]
    command = [*start, str(folder), str(rounds), str(STEPS), *(str(folder / f"{plan.id}.json") for plan in plans)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command,
        env=environment(plans[0], {"PYTHONPATH": path}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(
            f"the ranks of {', '.join(plan.config.engine.name for plan in plans)} "
            f"ended with {done.returncode}:\n{done.stdout[-4000:]}"
        )
    ranks = [json.loads((folder / f"blocks.{rank}.json").read_text()) for rank in range(RANKS)]
    return {name: [sum(block) for block in zip(*(rank[name] for rank in ranks), strict=True)] for name in ranks[0]}


def _plan(engine: str, *words: str) -> TrainingPlan:
    (job,) = jobs_of(run_parser().parse_intermixed_args((*WORDS, f"engine={engine}", *words)))
    assert isinstance(job.plan, TrainingPlan)
    return job.plan
