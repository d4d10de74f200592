"""Starts a training again and again, and kills it by SIGKILL after given seconds each time, until it has ended."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from llmexp.analysis.goodput import Interruptions, SpentTime, spent

TRAINER = Path(__file__).with_name("trainer.py")


@dataclass(frozen=True)
class Killed:
    """What a training took that was killed: seconds on the wall, and means of all its steps, checkpoints and starts.

    Means and not medians: what other programs take of the machine slows the wall's seconds too.
    """

    steps: int
    every: int
    wall_s: float
    step_s: float
    checkpoint_s: float
    restart_s: float
    gaps_s: tuple[float, ...]
    """From each start that was killed to its end."""
    loss: float
    """Of the last step."""

    @property
    def share(self) -> float:
        """The measured share of the time that counts."""
        return self.work_s / self.wall_s

    @property
    def work_s(self) -> float:
        """The seconds that the steps take alone."""
        return self.steps * self.step_s

    def meets(self, mtbf_s: float) -> Interruptions:
        """Return what the simulation is fed with."""
        return Interruptions(mtbf_s, self.checkpoint_s, self.restart_s)

    @property
    def replayed(self) -> SpentTime:
        """What the simulation makes of the very seconds after which the training was killed."""
        return spent(self.work_s, self.meets(1.0), self.every * self.step_s, self.gaps_s)


def train_and_kill(folder: Path, steps: int, every: int, gaps_s: Iterable[float]) -> Killed:
    """Train in a new folder; raises RuntimeError where the training fails by itself."""
    folder.mkdir(parents=True)
    words = [sys.executable, str(TRAINER), str(folder), str(steps), str(every)]
    starts_s, ended_s = [], []
    for gap_s in gaps_s:
        starts_s.append(time.monotonic())
        with (folder / "output.txt").open("w") as output:
            process = subprocess.Popen(words, stdout=output, stderr=output)
        if _ends_by_itself(process, gap_s):
            break
        ended_s.append(time.monotonic())
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{(folder / 'output.txt').read_text()[-2000:]}")
    return _killed(folder, steps, every, starts_s, ended_s)


def exponential(mean_s: float, seed: int) -> Iterator[float]:
    """Yield the seconds between failures that depend on nothing."""
    random = Random(seed)
    while True:
        yield random.expovariate(1 / mean_s)


def _ends_by_itself(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(min(within_s, 1e6))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def _killed(folder: Path, steps: int, every: int, starts_s: list[float], ended_s: list[float]) -> Killed:
    events = list(_events(folder / "log.jsonl"))
    ready = [one["at_s"] for one in events if one["event"] == "ready"]
    # A start that was killed before its first step says nothing of how long one takes.
    restarts = [min(at_s - start_s for start_s in starts_s if start_s < at_s) for at_s in ready]
    done = [one for one in events if one["event"] == "step"]
    return Killed(
        steps=steps,
        every=every,
        wall_s=events[-1]["at_s"] - starts_s[0],
        step_s=fmean(one["s"] for one in done),
        checkpoint_s=fmean(one["s"] for one in events if one["event"] == "checkpoint"),
        restart_s=fmean(restarts),
        gaps_s=tuple(end_s - start_s for start_s, end_s in zip(starts_s, ended_s, strict=False)),
        loss=done[-1]["loss"],
    )


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log, whose lines a killed process may have cut off."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
