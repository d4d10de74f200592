"""Predictions of tiny runs on this processor, by its own microbenchmarks and the constants that llmexp carries.

`python -m benchmarks.prediction.here FOLDER` measures into a folder, or takes what is there, and prints each run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.figure import Figure
from benchmarks.prediction.cpu_runs import measure
from benchmarks.prediction.errors import of_errors
from benchmarks.prediction.on_cpu import Truth, truths
from benchmarks.rates import held_rate
from llmexp.training.predict.calibrated_interval import cpu_interval
from llmexp.training.predict.cpu_step import constants

_MICRO = ("task=micro", "hardware=cpu", "tracking=none")
# Of one rank with one thread, and of two ranks.
_RANKS = (("micro.ranks=1", "measure.threads_per_rank=1"), ("micro.ranks=2",))
# The median error in percent.
LIMIT = 10.0


def measured(outputs: Path) -> list[Truth]:
    """Return the tiny runs of a folder; they are measured where it has none."""
    if not outputs.exists():
        for words in _RANKS:
            command = [sys.executable, "-m", "llmexp", *_MICRO, *words, f"sweep.outputs={outputs}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        measure(outputs, repeat=0)
    return truths(outputs)


def here_figures(folder: Path) -> Iterator[Figure]:
    """Yield the median error of a step's processor time, and how often the interval of a plan holds it."""
    errors = np.array([run.error(constants()) for run in measured(folder / "here")])
    low, high, _ = cpu_interval()
    held = int(((np.exp(errors) >= low) & (np.exp(errors) <= high)).sum())
    yield of_errors("median error, tiny runs on this processor", np.abs(np.expm1(errors)), np.median, LIMIT)
    yield held_rate("tiny runs on this processor: 90 % intervals that hold", held, len(errors))


def main(outputs: str) -> None:
    """Print each run with its milliseconds a step, and the error."""
    for run in measured(Path(outputs)):
        config = run.plan.config
        words = f"{config.model.name} {run.method} {run.plan.batch.micro} x {config.data.seq_len}"
        print(
            f"{np.expm1(run.error(constants())):+7.1%}  {1e3 * run.step_s:7.1f} ms  {words}, {run.plan.processes} ranks"
        )


if __name__ == "__main__":
    main(sys.argv[1])
