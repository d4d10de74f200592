"""The loss of a trial as far as it has come, of which its search may have seen enough."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from statistics import fmean

from llmexp.launch.follow import SampleFollower
from llmexp.record.plan import RunPlan
from llmexp.record.samples import Sample
from llmexp.registry import get_task

# The mean loss of each such share of a run's steps is compared.
_PARTS = 20
_FIRST_REPEAT = "repeat.0"


class LossWatch:
    """Reads the losses of all ranks in a run's first repeat; further repeats train the same again.

    `is_worse` gets the number of steps done and the mean loss of the last part of them.
    """

    def __init__(self, plan: RunPlan, is_worse: Callable[[int, float], bool]) -> None:
        self._plan, self._is_worse, self.reason = plan, is_worse, ""
        self._width = max(1, plan.samples // _PARTS)
        self._ranks: list[SampleFollower[Sample]] = []
        self._losses: list[list[float]] = []
        self._seen = 0

    def __call__(self, repeat: Path) -> str | None:
        """Return why the run ends here; None where it goes on."""
        if self.reason or repeat != self._plan.folder / _FIRST_REPEAT:
            return self.reason or None
        self._read(repeat)
        while not self.reason and (part := self._next_part()):
            self._judge(fmean(part))
        return self.reason or None

    def _read(self, repeat: Path) -> None:
        if not self._ranks:
            kind = get_task(self._plan.config.task.name).sample_type
            paths = [repeat / f"samples.{rank}.jsonl" for rank in range(self._plan.processes)]
            self._ranks, self._losses = [SampleFollower(path, kind) for path in paths], [[] for _ in paths]
        for rank, losses in zip(self._ranks, self._losses, strict=True):
            losses += [sample.values["loss"] for sample in rank.read()]

    def _next_part(self) -> list[float]:
        """Return the losses of the next steps, each the mean over the ranks; none where a rank is not that far."""
        steps = list(zip(*(losses[self._seen : self._seen + self._width] for losses in self._losses), strict=False))
        if len(steps) < self._width:
            return []
        self._seen += self._width
        return [fmean(losses) for losses in steps]

    def _judge(self, loss: float) -> None:
        where = f"step {self._seen}" + f" of {self._plan.samples}" * bool(self._plan.samples)
        if not isfinite(loss):
            self.reason = f"pruned at {where}: its loss is no finite number"
        elif self._is_worse(self._seen, loss):
            self.reason = f"pruned at {where}: its loss {loss:.4g} is worse than that of other trials there"
