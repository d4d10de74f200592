"""Draws the timeline of one profiled step of a run, or of any trace of torch.profiler."""

from __future__ import annotations

from pathlib import Path

from llmexp.cli.arguments import one_run
from llmexp.errors import ConfigError, TraceError
from llmexp.record.folder import RunFolder
from llmexp.report.breakdown.timeline_plot import draw_timeline
from llmexp.traces.breakdown import read_profile
from llmexp.traces.run import ranks_of
from llmexp.traces.timeline import timeline


def draw_step(path: Path, rank: int, picture: Path) -> None:
    """Draw a step of a run's rank, or of a trace; raises ConfigError, TraceError and RecordError."""
    check_there_is(path)
    name, trace = _trace_of_run(path, rank) if path.is_dir() else (path.name, path)
    draw_timeline(timeline(read_profile(trace)), name, picture)
    print(picture)


def check_there_is(path: Path) -> None:
    """Raise ConfigError where there is no such folder or file."""
    if not path.exists():
        raise ConfigError(f"there is no {path}: name a run's folder or a trace of torch.profiler")


def untraced(folder: RunFolder) -> str:
    """Return what a run without a trace is told."""
    return f"{folder.path} has no trace: set measure.profile=true to record one"


def _trace_of_run(path: Path, rank: int) -> tuple[str, Path]:
    """Return a run's name and the trace of a rank, from the last repeat that was traced."""
    folder = one_run(path)
    ranks = next((found for repeat in reversed(folder.repeats()) if (found := ranks_of(repeat))), {})
    if not ranks:
        raise TraceError(untraced(folder))
    if rank not in ranks:
        raise ConfigError(f"--rank={rank} was not traced: choices are {', '.join(map(str, sorted(ranks)))}")
    return folder.path.name, ranks[rank]
