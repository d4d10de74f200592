"""The breakdown of a run: of the traces of all its ranks that were traced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from llmexp.errors import TraceError
from llmexp.record.breakdown import Breakdown, RunBreakdown
from llmexp.record.calibration import Calibration
from llmexp.record.counted import Peaks
from llmexp.record.folder import RunFolder
from llmexp.traces.breakdown import break_down, read_profile
from llmexp.traces.collectives import Calls, collective_times

_NUMBER = re.compile(r"\d+")


def break_down_run(
    folder: RunFolder, processes: int, peaks: Peaks, calibration: Calibration | None = None
) -> RunBreakdown | None:
    """Read the traces of a run's traced repeat; None where nothing was traced.

    The remark names a trace that cannot be read, and says where not all ranks were traced.
    """
    for repeat in reversed(folder.repeats()):
        if traces := traces_of(repeat):
            found = break_down_ranks(traces, int(repeat.suffix[1:]))
            told = [found.remark] * bool(found.remark)
            told += [f"{len(traces)} of {processes} ranks were traced"] * (len(traces) < processes)
            of_run = {"peaks": peaks, "processes": processes, "calibration": calibration}
            return found.model_copy(update=of_run | {"remark": "; ".join(told)})
    return None


def write_breakdown(folder: RunFolder, processes: int, peaks: Peaks, calibration: Calibration | None = None) -> None:
    """Write breakdown.json where something was traced."""
    if found := break_down_run(folder, processes, peaks, calibration):
        folder.write(folder.breakdown_path, found)


def traces_of(repeat: Path) -> list[Path]:
    """Return the traces of a repeat's ranks, in order."""
    found = ranks_of(repeat)
    return [found[rank] for rank in sorted(found)]


def ranks_of(repeat: Path) -> dict[int, Path]:
    """Return the trace of each rank of a repeat that was traced."""
    files = (path for path in repeat.glob("trace/rank*.json*") if path.is_file())
    return {int(number[0]): path for path in files if (number := _NUMBER.search(path.name))}


def break_down_ranks(traces: Sequence[Path], repeat: int = 0) -> RunBreakdown:
    """Read the ranks' traces one by one."""
    ranks: list[Breakdown] = []
    calls: list[Calls] = []
    unread: list[str] = []
    for path in traces:
        try:
            profile = read_profile(path)
            ranks.append(break_down(profile))
            calls.append(Calls.of(profile.trace.names, profile.work))
        except TraceError as error:
            unread.append(str(error))
    return RunBreakdown(
        repeat=repeat, ranks=ranks, collectives=collective_times(calls) if calls else [], remark="; ".join(unread)
    )
