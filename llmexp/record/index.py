"""An index of the ended runs of a sweep, with what listings need of each, kept beside the runs.

The index is only a cache: an entry counts only while the run's result, plan and first repeat are those that it was read
from. So an index that is missing, broken or old costs time and nothing else. Runs without a result are read anew every
time, because their driver may have died since.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from llmexp.errors import RecordError
from llmexp.record.folder import PLAN, RESULT, RunFolder
from llmexp.record.naming import distinguishing_overrides
from llmexp.record.plan import RunPlan
from llmexp.record.reading import read_json
from llmexp.record.result import RunResult
from llmexp.record.samples import Sample, read_samples
from llmexp.record.writing import write_atomically

INDEX = ".index.json"
UNREADABLE = "unreadable"
_VERSION = 5
# An entry is of these as they were when it was made.
_STAMPED = (RESULT, PLAN, "repeat.0")
_Stamp = list[list[int] | None]
_Index = dict[str, tuple[_Stamp, "RunOverview"]]


@dataclass(frozen=True)
class RunOverview:
    """A run's progress, its end and the reason, and its use of time; `state` is RunFolder.state's, or 'unreadable'."""

    state: str
    reason: str = ""
    id: str = ""
    duration_key: str = ""
    """A key that runs share whose steps take about the same time per position."""
    words: list[str] = field(default_factory=list)
    """The run's command by naming.distinguishing_overrides."""
    repeats: int = 0
    """The number of repeats that rank 0 has finished."""
    planned_repeats: int = 0
    warmup_samples: int = 0
    """The planned number per repeat."""
    samples: int = 0
    """The number measured in the latest repeat."""
    planned_samples: int = 0
    amount: float = 0.0
    """The work of one sample of all ranks, in the unit of the rate."""
    held_s: float | None = None
    """The time from the first event to the result."""
    rate: float | None = None


def overviews(folders: Sequence[RunFolder]) -> list[RunOverview]:
    """Return the runs' overviews in their order; it reads only what has changed since the last call and never fails."""
    by_sweep: dict[Path, list[RunFolder]] = {}
    for folder in folders:
        by_sweep.setdefault(folder.sweep, []).append(folder)
    found = {sweep: iter(_of_sweep(sweep, runs)) for sweep, runs in by_sweep.items()}
    return [next(found[folder.sweep]) for folder in folders]


def duration_key(plan: RunPlan) -> str:
    """Return a key that plans share whose samples take about the same time for the same amount."""
    return " ".join((*plan.name_fields.values(), *plan.duration_key.values()))


def _of_sweep(sweep: Path, runs: Iterable[RunFolder]) -> list[RunOverview]:
    earlier = _read(sweep / INDEX)
    known, found = dict(earlier), []
    for run in runs:
        stamp, name = [_stat(f"{run.path}/{part}") for part in _STAMPED], run.path.name
        entry = earlier.get(name)
        if stamp[0] is None or entry is None or entry[0] != stamp:
            standing = _look(run)
            known.pop(name, None)
            if stamp[0] and standing.state != UNREADABLE:
                known[name] = (stamp, standing)
            entry = (stamp, standing)
        found.append(entry[1])
    if known != earlier:
        _write(sweep / INDEX, known)
    return found


def _stat(path: str) -> list[int] | None:
    """Return numbers that change when a file is replaced or a folder's content changes; None where it is missing."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return [stat.st_mtime_ns, stat.st_size, stat.st_ino]


def _look(run: RunFolder) -> RunOverview:
    """Read a run's overview from its own files."""
    try:
        result = run.result()
        state, reason = run.standing(result)
        plan = RunPlan.read(run.plan_path)
        return RunOverview(state=state, reason=reason, **_planned(plan), **_progress(run), **_measured(plan, result))
    except (RecordError, OSError, ValueError, KeyError) as error:
        return RunOverview(UNREADABLE, (str(error) or repr(error)).partition("\n")[0])


def _planned(plan: RunPlan) -> dict[str, Any]:
    numbers = {"planned_repeats": plan.config.measure.repeats, "planned_samples": plan.measured_samples}
    numbers |= {"warmup_samples": plan.samples - plan.measured_samples}
    return {
        "id": plan.id,
        "words": distinguishing_overrides(plan.overrides, plan.name_fields),
        "duration_key": duration_key(plan),
        "amount": plan.amount,
        **numbers,
    }


def _progress(run: RunFolder) -> dict[str, Any]:
    repeats = run.repeats()
    samples = repeats[-1] / "samples.0.jsonl" if repeats else None
    measured = sum(not sample.warmup for sample in read_samples(samples, Sample)) if samples and samples.exists() else 0
    return {"repeats": sum((repeat / "rank.0.json").exists() for repeat in repeats), "samples": measured}


def _measured(plan: RunPlan, result: RunResult | None) -> dict[str, Any]:
    if result is None:
        return {}
    rate = result.metrics.get(plan.rate)
    return {"held_s": result.held_s, "rate": rate.mean if rate else None}


def _read(path: Path) -> _Index:
    try:
        index = read_json(path)
        return (
            {name: (stamp, RunOverview(**entry)) for name, (stamp, entry) in index["runs"].items()}
            if index["version"] == _VERSION
            else {}
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(path: Path, index: _Index) -> None:
    """Write the entries of runs that still exist; a folder that cannot be written to is listed all the same."""
    runs = {
        name: (stamp, asdict(standing)) for name, (stamp, standing) in index.items() if (path.parent / name).exists()
    }
    with contextlib.suppress(OSError):
        write_atomically(path, json.dumps({"version": _VERSION, "runs": runs}))
