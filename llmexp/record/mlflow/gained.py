"""The points that a run which goes on has gained since the last look; the copy at its end has the same and more."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.printed import Appended
from llmexp.record.reading import parsed
from llmexp.record.samples import Sample
from llmexp.record.trackers.points import Point, RateOverTime, Window, machine_points, step_points, told_point
from llmexp.registry import get_task


class Gained:
    """A reader of a run's folder. `known` are the metrics that the tracker has already, of earlier repeats too."""

    def __init__(self, folder: RunFolder, plan: RunPlan, window: Window, known: Container[str] = ()) -> None:
        self._folder, self._plan, self._window, self._known = folder, plan, window, known
        self._repeats: dict[Path, _Repeat] = {}
        self._machines: dict[Path, _Machine] = {}

    def points(self) -> list[Point]:
        """Return new points only; raises OSError, and ValueError where a line is none that a rank writes."""
        *earlier, newest = self._folder.repeats()
        shown = [repeat for repeat in earlier if repeat in self._repeats or not self._has(repeat)]
        found: list[Point] = []
        for repeat in (*shown, newest):
            found += self._repeats.setdefault(repeat, _Repeat(repeat, self._plan)).points()
        for path in self._folder.systems():
            found += self._machines.setdefault(path, _Machine(path, self._window)).points()
        return found

    def _has(self, repeat: Path) -> bool:
        return f"{repeat.name}/{self._plan.sample_name}_time_s" in self._known


class _Repeat:
    """One repeat; a sample counts once every rank has written it, as the slowest rank sets its time."""

    def __init__(self, path: Path, plan: RunPlan) -> None:
        self._path, self._plan, self._task = path, plan, get_task(plan.config.task.name)
        self._files = [Appended(path / f"samples.{rank}.jsonl") for rank in range(plan.processes)]
        self._rates = RateOverTime(path.name, plan)
        self._of_first: deque[Sample] = deque()
        self._seconds: dict[int, list[float]] = {}
        self._profiled: list[Sample] = []
        self._has_measured = False
        self._origin_s: float | None = None
        self._told = 0

    def points(self) -> Iterator[Point]:
        self._read()
        for sample in self._measured():
            slowest_s = max(self._seconds.pop(sample.index))
            # Without its time a sample waits for the copy at the end, which knows when the run ended.
            if sample.at_s is not None:
                yield from step_points(sample, slowest_s, sample.at_s, self._path.name, self._plan)
                yield from self._rates.add(sample, sample.at_s)
        yield from self._beside()

    def _read(self) -> None:
        for rank, file in enumerate(self._files):
            kind = Sample if rank else self._task.sample_type
            samples = [kind.model_validate_json(line) for line in file.read()]
            for sample in samples:
                self._seconds.setdefault(sample.index, []).append(sample.t_end_s - sample.t_start_s)
            self._of_first.extend([] if rank else samples)

    def _measured(self) -> Iterator[Sample]:
        """Yield the samples that all ranks have; a warm-up after measured ones only once another measured one came.

        Those at the end are profiled steps, which are no part of the curves.
        """
        while self._of_first and len(self._seconds[self._of_first[0].index]) == len(self._files):
            sample = self._of_first.popleft()
            if self._origin_s is None and sample.at_s is not None:
                self._origin_s = sample.at_s - sample.t_end_s
            self._has_measured |= not sample.warmup
            self._profiled.append(sample)
            if not (sample.warmup and self._has_measured):
                yield from self._profiled
                self._profiled = []

    def _beside(self) -> Iterator[Point]:
        """Yield what the task tells beside samples; the file may end in the middle of a line."""
        if self._origin_s is None:
            return
        with suppress(ValueError):
            for told in list(self._task.series(self._path))[self._told :]:
                self._told += 1
                yield told_point(self._path.name, told, self._origin_s)


class _Machine:
    """The samples of one machine."""

    def __init__(self, path: Path, window: Window) -> None:
        self._file, self._window, self._step = Appended(path), window, 0

    def points(self) -> Iterator[Point]:
        for sample in map(parsed, (line.decode() for line in self._file.read())):
            if sample["at_s"] >= self._window.start_s:
                yield from machine_points(self._file.path, sample, self._step)
                self._step += 1
