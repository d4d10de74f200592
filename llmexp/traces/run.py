"""The breakdown of a run: of the traces of all its ranks that were traced."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from llmexp.errors import TraceError
from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.record.calibration import Calibration
from llmexp.record.counted import Peaks
from llmexp.record.folder import RunFolder
from llmexp.traces.breakdown import break_down, read_profile
from llmexp.traces.collectives import Calls, collective_times
from llmexp.traces.messages import moved_bytes

_NUMBER = re.compile(r"\d+")
# The traces that a run keeps are no larger together, but for the first rank's, which it keeps whatever its size.
KEPT_BYTES = 50_000_000


def break_down_run(
    folder: RunFolder, processes: int, peaks: Peaks, calibration: Calibration | None = None
) -> RunBreakdown | None:
    """Read the traces of a run's traced repeat; None where nothing was traced.

    The remark names a trace that cannot be read, and says where not all ranks were traced.
    """
    for repeat in reversed(folder.repeats()):
        if traces := traces_of(repeat):
            of_run = {"peaks": peaks, "processes": processes, "calibration": calibration}
            found = break_down_ranks(traces, int(repeat.suffix[1:]), processes).model_copy(update=of_run)
            missing = f"{len(traces)} of {processes} ranks were traced" * (len(traces) < processes)
            return _with_remark(found, missing)
    return None


def write_breakdown(folder: RunFolder, processes: int, peaks: Peaks, calibration: Calibration | None = None) -> None:
    """Write breakdown.json where something was traced, then remove the traces that are beyond KEPT_BYTES.

    The breakdown has all ranks, also those whose traces are removed, and its remark says so.
    """
    found = break_down_run(folder, processes, peaks, calibration)
    if found is None:
        return
    traces = traces_of(folder.repeat(found.repeat))
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
    """Return the traces of a repeat's ranks, in order."""
    found = ranks_of(repeat)
    return [found[rank] for rank in sorted(found)]


def ranks_of(repeat: Path) -> dict[int, Path]:
    """Return the trace of each rank of a repeat that was traced."""
    files = (path for path in repeat.glob("trace/rank*.json*") if path.is_file())
    return {int(number[0]): path for path in files if (number := _NUMBER.search(path.name))}


def break_down_ranks(traces: Sequence[Path], repeat: int = 0, processes: int | None = None) -> RunBreakdown:
    """Read the ranks' traces one by one; `processes` are all ranks of the run, where not all were traced."""
    ranks: list[Breakdown] = []
    calls: list[Calls] = []
    moved: list[dict[str, int]] = []
    unread: list[str] = []
    for path in traces:
        try:
            profile = read_profile(path)
            of_rank = Calls.of(path, profile.trace.names, profile.work)
            ranks.append(break_down(profile))
            calls.append(of_rank)
            moved.append(moved_bytes(profile.trace, profile.attribution.steps, processes or len(traces)))
        except TraceError as error:
            unread.append(str(error))
    return RunBreakdown(
        repeat=repeat,
        ranks=ranks,
        collectives=collective_times(calls) if calls else [],
        moved_bytes=_mean(moved),
        remark="; ".join(unread),
    )


def _mean(ranks: Sequence[Mapping[str, int]]) -> dict[str, int]:
    kinds = dict.fromkeys(kind for of_rank in ranks for kind in of_rank)
    return {kind: sum(of_rank.get(kind, 0) for of_rank in ranks) // len(ranks) for kind in kinds}
