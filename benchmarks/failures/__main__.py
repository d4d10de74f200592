"""`python -m benchmarks.failures` kills trainings at random times, and prints how near the simulation is.

Four trainings do the same steps: one undisturbed, and three that differ in the steps between checkpoints. Each takes
some minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import repeat
from math import inf
from pathlib import Path

from benchmarks.failures.killed import Killed, exponential, train_and_kill
from llmexp.analysis.goodput import simulated

_COLUMNS = (
    "steps between checkpoints",
    "kills",
    "wall s",
    "step s",
    "checkpoint s",
    "start s",
    "measured %",
    "simulated % (9 of 10)",
    "replayed %",
)


def main() -> int:
    """Train, and print a table in Markdown; return 1 where a killed training ends with another loss."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failures")
    parser.add_argument("--work", type=float, default=150.0, metavar="S", help="seconds of steps in each training")
    parser.add_argument("--mean", type=float, default=20.0, metavar="S", help="mean seconds between kills")
    parser.add_argument("--seed", type=int, default=1, help="of the times of kills")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmexp-failures-") as name:
        folder = Path(name)
        probe = train_and_kill(folder / "probe", 60, 10, repeat(inf, 1))
        steps = round(asked.work / probe.step_s)
        best = max(1, round(probe.meets(asked.mean).best_interval_s / probe.step_s))
        print(*("| " + " | ".join(_COLUMNS) + " |", "|" + "---:|" * len(_COLUMNS)), sep="\n", flush=True)
        undisturbed = train_and_kill(folder / "undisturbed", steps, best, repeat(inf, 1))
        print(_row(undisturbed, inf), flush=True)
        same = True
        for turn, every in enumerate((max(1, best // 4), best, 4 * best)):
            found = train_and_kill(folder / f"every {every}", steps, every, exponential(asked.mean, asked.seed + turn))
            print(_row(found, asked.mean), flush=True)
            same = same and found.loss == undisturbed.loss
    print(
        f"\n{steps} steps; the last loss is {undisturbed.loss:.6f}, and {'the same' if same else 'NOT the same'} in all"
    )
    return 0 if same else 1


def _row(found: Killed, mean_s: float) -> str:
    fed = simulated(found.work_s, found.meets(mean_s), found.every * found.step_s) if mean_s < inf else None
    expected = f"{fed.share:.1%} ({fed.low:.1%} to {fed.high:.1%})".replace("%", "") if fed else ""
    seconds = (f"{found.wall_s:.0f}", f"{found.step_s:.3f}", f"{found.checkpoint_s:.2f}", f"{found.restart_s:.2f}")
    shares = (f"{100 * found.share:.1f}", expected, f"{100 * found.replayed.share:.1f}")
    return "| " + " | ".join((str(found.every), str(len(found.gaps_s)), *seconds, *shares)) + " |"


if __name__ == "__main__":
    sys.exit(main())
