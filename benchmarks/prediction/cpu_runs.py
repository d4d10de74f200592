"""Small runs on this processor, and the processor time of their steps, which other programs change little.

On a machine with enough free cores a step takes as long as the processor time of its busiest rank, but for waits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.samples import StepSample, read_samples

_SMALL = "model=tiny"
_WIDER = (_SMALL, "model.hidden_size=256", "model.intermediate_size=688", "model.num_layers=6", "model.vocab_size=2048")
_ALONE = ("hardware.devices_per_node=1", "measure.threads_per_rank=1")
_PROTOCOL = ("hardware=cpu", "data=synthetic", "tracking=none", "measure.warmup_steps=3", "measure.profile=false")
_POLL_S = 0.02
_RANKS = "*/repeat.*/process.*.json"
# A run: its words, with one rank of one thread unless they say otherwise.
RUNS: tuple[tuple[str, ...], ...] = (
    (_SMALL, "method=Naive", "data.seq_len=256", *_ALONE),
    (_SMALL, "method=F", "data.seq_len=256", *_ALONE),
    (_SMALL, "method=R", "data.seq_len=256", *_ALONE),
    (_SMALL, "method=F+R", "data.seq_len=256", "batch.micro=2", *_ALONE),
    (_SMALL, "method=Naive", "data.seq_len=128", "batch.micro=8", *_ALONE),
    (_SMALL, "method=F", "data.seq_len=512", "batch.micro=2", *_ALONE),
    (_SMALL, "method=Z2", "data.seq_len=256", "batch.micro=2", *_ALONE),
    (_SMALL, "method=Z3", "data.seq_len=256", "batch.micro=4", *_ALONE),
    (_SMALL, "task=finetune", "method=L", "data.seq_len=256", *_ALONE),
    (_SMALL, "task=finetune", "method=L+F", "data.seq_len=256", "batch.micro=4", *_ALONE),
    (*_WIDER, "method=Naive", "data.seq_len=256", *_ALONE),
    (*_WIDER, "method=F", "data.seq_len=128", "batch.micro=4", *_ALONE),
    (*_WIDER, "method=R", "data.seq_len=128", "batch.micro=1", *_ALONE),
    (_SMALL, "method=Naive", "data.seq_len=256"),
    (_SMALL, "method=Z2", "data.seq_len=256", "batch.micro=2"),
    (_SMALL, "method=Z3", "data.seq_len=256"),
    (_SMALL, "method=F", "data.seq_len=128", "batch.micro=8"),
    (*_WIDER, "method=Z3", "data.seq_len=128", "batch.micro=4"),
    (*_WIDER, "method=Z2", "data.seq_len=256"),
    (_SMALL, "task=finetune", "method=L", "data.seq_len=128", "batch.micro=2"),
)


@dataclass
class _Clock:
    """The processor time of one rank over time, in seconds."""

    at_s: list[float] = field(default_factory=list)
    busy_s: list[float] = field(default_factory=list)

    def read(self, pid: int) -> None:
        """Add the present reading, if the process is still there."""
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
            busy_ns = sum(int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) for task in tasks)
        except (OSError, IndexError):
            return
        self.at_s.append(time.time())
        self.busy_s.append(busy_ns / 1e9)

    def until(self, at_s: float) -> float:
        """Return the processor time up to a time, on the line between two readings."""
        place = min(max(bisect(self.at_s, at_s), 1), len(self.at_s) - 1)
        (begin, end), (low, high) = self.at_s[place - 1 : place + 1], self.busy_s[place - 1 : place + 1]
        return low + (high - low) * (at_s - begin) / (end - begin)


def measure(outputs: Path, repeat: int, steps: int = 15) -> None:
    """Measure every run once, and write the processor time of its steps beside its records."""
    for words in RUNS:
        own = [*words, *_PROTOCOL, f"measure.steps={steps}", f"sweep.name=repeat{repeat}", f"sweep.outputs={outputs}"]
        code = clocked(own, outputs / f"repeat{repeat}")
        print(" ".join(words), code, flush=True)


def clocked(words: Sequence[str], sweep: Path) -> int:
    """Measure what a command line says into a sweep's folder, with the processor time of each new repeat's steps.

    Returns the exit code.
    """
    before = {*sweep.glob(_RANKS)}
    process = subprocess.Popen([sys.executable, "-m", "llmexp", *words], stdout=subprocess.DEVNULL)
    clocks: dict[Path, _Clock] = {}
    while process.poll() is None:
        for path in {*sweep.glob(_RANKS)} - before:
            clocks.setdefault(path, _Clock()).read(_pid(path))
        time.sleep(_POLL_S)
    for path, clock in clocks.items():
        _write(path, clock)
    return process.returncode


def _pid(path: Path) -> int:
    try:
        return int(json.loads(path.read_text().splitlines()[-1])["pid"])
    except (ValueError, KeyError, IndexError, OSError):
        return 0


def _write(path: Path, clock: _Clock) -> None:
    """Write the seconds of each measured step; a rank that ended without any has none."""
    rank = path.name.split(".")[1]
    samples = read_samples(path.with_name(f"samples.{rank}.jsonl"), StepSample)
    ends = [sample.at_s for sample in samples if sample.at_s is not None]
    ends = ends[sum(sample.warmup for sample in samples) - 1 :]
    if len(ends) > 1 and len(clock.at_s) > 1:
        seconds = [clock.until(end) - clock.until(begin) for begin, end in pairwise(ends)]
        path.with_name(f"busy.{rank}.json").write_text(json.dumps(seconds))


def steps_s(run: RunFolder) -> list[list[float]]:
    """Return the processor time of the steps of each repeat's busiest rank, where it was measured."""
    found = [[json.loads(path.read_text()) for path in repeat.glob("busy.*.json")] for repeat in run.repeats()]
    return [max(ranks, key=sum) for ranks in found if ranks]


def busy_s(run: RunFolder) -> float | None:
    """Return the processor time of a step of the busiest rank; None where it was not measured."""
    found = steps_s(run)
    return fmean(found[0]) if found else None


def folders(outputs: Path) -> Iterator[RunFolder]:
    """Yield the runs of all repeats."""
    for sweep in sorted(outputs.glob("repeat*")):
        yield from find_runs(sweep)


def main(words: Sequence[str]) -> None:
    """Measure repeats into a folder."""
    outputs = Path(words[0])
    for repeat in range(int(words[1])):
        measure(outputs, repeat)


if __name__ == "__main__":
    main(sys.argv[1:])
