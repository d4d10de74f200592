"""The breakdown of a run: of the traces of all its ranks that were traced."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from llmexp.errors import TraceError
from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.record.calibration import Calibration
from llmexp.record.counted import CountedPeaks
from llmexp.record.folder import RunFolder
from llmexp.record.samples import Record
from llmexp.record.timeline import Timeline, write_timeline
from llmexp.traces.breakdown import break_down, read_profile
from llmexp.traces.collectives import Calls, collective_times, joined
from llmexp.traces.messages import moved_bytes
from llmexp.traces.timeline import timeline

_NUMBER = re.compile(r"\d+")
_WINDOW = re.compile(r"(rank\d+)\.\d+\.json")
# The traces that a run keeps are no larger together, but for the first rank's, which it keeps whatever its size.
KEPT_BYTES = 50_000_000
R = TypeVar("R", bound=Record)
# What rows of one table are known by; the other numbers of such rows add up.
_KEYS: dict[str, tuple[str, ...]] = {
    "phases": ("phase",),
    "modules": ("phase", "path", "recomputed"),
    "kernels": ("name", "kind"),
}
_LARGEST: dict[str, str] = {"kernels": "work_ns", "gemms": "work_ns", "attention": "work_ns"}
_SUMMED = ("calls", "work_ns")


def break_down_run(
    folder: RunFolder, processes: int, peaks: CountedPeaks, calibration: Calibration | None = None
) -> RunBreakdown | None:
    """Read the traces of a run's traced repeat; None where nothing was traced.

    The remark names a trace that cannot be read, and says where not all ranks were traced.
    """
    found = _last_traced(folder)
    if found is None:
        return None
    repeat, traces = found
    ranks = _Ranks(processes)
    ranks.read(traces)
    return ranks.of_run(repeat, {"peaks": peaks, "calibration": calibration})


def _last_traced(folder: RunFolder) -> tuple[int, list[Path]] | None:
    """Return the number of the last repeat that was traced, with its traces."""
    traced = ((int(repeat.suffix[1:]), traces_of(repeat)) for repeat in reversed(folder.repeats()))
    return next((found for found in traced if found[1]), None)


def write_breakdown(
    folder: RunFolder, processes: int, peaks: CountedPeaks, calibration: Calibration | None = None
) -> None:
    """Write breakdown.json and timeline.json where something was traced, then remove traces beyond KEPT_BYTES.

    The breakdown has all ranks, also those whose traces are removed, and its remark says so.
    """
    traced = _last_traced(folder)
    if traced is None:
        return
    repeat, traces = traced
    ranks = _Ranks(processes, with_timeline=True)
    ranks.read(traces)
    found = ranks.of_run(repeat, {"peaks": peaks, "calibration": calibration})
    if ranks.timeline:
        write_timeline(folder, ranks.timeline)
    removed = _beyond(KEPT_BYTES, traces)
    told = (
        f"the traces of {len(removed)} of {len(traces)} ranks were removed after they had been read, because a run "
        f"keeps {KEPT_BYTES / 1e6:,.0f} MB of them"
    )
    folder.write(folder.breakdown_path, _with_remark(found, told * bool(removed)))
    for path in removed:
        path.unlink()


def _beyond(kept_bytes: int, traces: Sequence[Path]) -> list[Path]:
    """Return the traces of the last ranks, without which the others together are no larger; never the first."""
    sums = accumulate(path.stat().st_size for path in traces)
    return [
        path for number, (path, in_all) in enumerate(zip(traces, sums, strict=True)) if number and in_all > kept_bytes
    ]


def _with_remark(found: RunBreakdown, remark: str) -> RunBreakdown:
    return found.model_copy(update={"remark": "; ".join(part for part in (found.remark, remark) if part)})


def traces_of(repeat: Path) -> list[Path]:
    """Return the traces of a repeat's ranks, in order of the ranks, and of a rank's windows where it has several."""
    return sorted((path for path in repeat.glob("trace/rank*.json*") if path.is_file()), key=_place)


def ranks_of(repeat: Path) -> dict[int, Path]:
    """Return the trace of each rank of a repeat that was traced, of its last window where it has several."""
    return {_place(path)[0]: path for path in traces_of(repeat)}


def _place(path: Path) -> tuple[int, int]:
    """Return the rank and the window of a trace, from names such as rank0.json.gz and rank0.1.json.gz."""
    numbers = [int(number) for number in _NUMBER.findall(path.name)]
    return (numbers[0] if numbers else 0), (numbers[1] if len(numbers) > 1 else 0)


def break_down_ranks(traces: Sequence[Path]) -> RunBreakdown:
    """Read the traces of all ranks one by one."""
    ranks = _Ranks(len(traces))
    ranks.read(traces)
    return ranks.breakdown()


class _Ranks:
    """What the ranks' traces say, each read once."""

    def __init__(self, processes: int, *, with_timeline: bool = False) -> None:
        self._processes, self._with_timeline = processes, with_timeline
        self._ranks: list[Breakdown] = []
        self._calls: list[Calls] = []
        self._moved: list[dict[str, int]] = []
        self._unread: list[str] = []
        self.timeline: Timeline | None = None

    def read(self, traces: Sequence[Path]) -> None:
        """Read each trace; one that cannot be read is named in the remark."""
        for windows in _by_rank(traces):
            found = [each for path in windows if (each := self._read(path))]
            if found:
                self._ranks.append(together([one for one, _, _ in found]))
                self._calls.append(joined([calls for _, calls, _ in found]))
                self._moved.append(_sum([moved for _, _, moved in found]))

    def _read(self, path: Path) -> tuple[Breakdown, Calls, dict[str, int]] | None:
        try:
            profile = read_profile(path)
            calls = Calls.of(path, profile.trace.names, profile.work)
            found = break_down(profile)
        except TraceError as error:
            self._unread.append(str(error))
            return None
        # That of the first rank, and of its last window, which has what a server does most of the time.
        if self._with_timeline and not self._ranks:
            self.timeline = timeline(profile)
        return found, calls, moved_bytes(profile.trace, profile.attribution.steps, self._processes)

    def breakdown(self, repeat: int = 0) -> RunBreakdown:
        """Return the breakdown of all ranks that could be read."""
        return RunBreakdown(
            repeat=repeat,
            ranks=self._ranks,
            collectives=collective_times(self._calls) if self._calls else [],
            moved_bytes=_mean(self._moved),
            remark="; ".join(self._unread),
        )

    def of_run(self, repeat: int, of_run: Mapping[str, Any]) -> RunBreakdown:
        """Return the breakdown with what only the run knows; the remark says where not all ranks were traced."""
        found = self.breakdown(repeat).model_copy(update=dict(of_run) | {"processes": self._processes})
        traced = len(self._ranks) + len(self._unread)
        return _with_remark(found, f"{traced} of {self._processes} ranks were traced" * (traced < self._processes))


def _by_rank(traces: Sequence[Path]) -> list[list[Path]]:
    """Return the traces of each rank; one that has no name of ours is a rank of its own."""
    found: dict[tuple[Path, str], list[Path]] = {}
    for path in traces:
        ours = _WINDOW.match(path.name)
        found.setdefault((path.parent, ours[1] if ours else path.name), []).append(path)
    return list(found.values())


def _sum(windows: Sequence[Mapping[str, int]]) -> dict[str, int]:
    kinds = dict.fromkeys(kind for window in windows for kind in window)
    return {kind: sum(window.get(kind, 0) for window in windows) for kind in kinds}


def _mean(ranks: Sequence[Mapping[str, int]]) -> dict[str, int]:
    kinds = dict.fromkeys(kind for of_rank in ranks for kind in of_rank)
    return {kind: sum(of_rank.get(kind, 0) for of_rank in ranks) // len(ranks) for kind in kinds}


def together(windows: Sequence[Breakdown]) -> Breakdown:
    """Return one breakdown of all windows; their lists of costly shapes and kernels were cut off one by one."""
    first = windows[0]
    if len(windows) == 1:
        return first
    numbers = {name: sum(getattr(each, name) for each in windows) for name in _numbers(first)}
    tables = {name: _rows(name, [row for each in windows for row in getattr(each, name)]) for name in _tables(first)}
    kinds = dict.fromkeys(kind for each in windows for kind in each.kinds)
    return first.model_copy(
        update={
            **numbers,
            **tables,
            "source": ", ".join(each.source for each in windows),
            "kinds": {kind: sum(each.kinds.get(kind, 0) for each in windows) for kind in kinds},
            "truncated": any(each.truncated for each in windows),
        }
    )


def _numbers(found: Record) -> list[str]:
    return [name for name, value in found if isinstance(value, int | float) and not isinstance(value, bool)]


def _tables(found: Record) -> list[str]:
    return [name for name, value in found if isinstance(value, list)]


def _rows(table: str, rows: Sequence[Any]) -> list[Any]:
    summed = _added(rows, table)
    if order := _LARGEST.get(table):
        summed.sort(key=lambda row: -getattr(row, order))
    return summed


def _added(rows: Iterable[R], table: str) -> list[R]:
    found: dict[Hashable, R] = {}
    for row in rows:
        added = [name for name in _numbers(row) if name not in _KEYS[table]] if table in _KEYS else _SUMMED
        key = tuple(repr(value) for name, value in row if name not in added)
        known = found.get(key)
        sums = {name: getattr(known, name) + getattr(row, name) for name in added} if known else {}
        found[key] = row.model_copy(update=sums)
    return list(found.values())
