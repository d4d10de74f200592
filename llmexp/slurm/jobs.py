"""Which job runs which run: <sweep>/slurm/jobs.jsonl, a line a submission, so that any shell on any day can take over.

A line is written before SLURM is asked, with the name that this submission alone has, and once more with the number that SLURM gave, or that it
refused. A driver may be killed in between: its jobs are known by that name, in the queue or by the log that they have begun, and a job finds its
run by it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from llmexp import __version__
from llmexp.errors import RecordError
from llmexp.launch.display import say
from llmexp.record.folder import RunFolder, now, read_json_lines
from llmexp.record.lock import acquire_waiting
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult
from llmexp.record.unreadable_record import unreadable_record
from llmexp.slurm.queue import Job

# How the name of a job's log goes on after its number.
LOG = "_0_log.out"
_NUMBER = re.compile(r"\d+(_\d+)?")


@dataclass(frozen=True)
class Submitted:
    """One run's latest job; `replaces` is when the result that lay in the folder at that time had ended, '' where there was none."""

    folder: RunFolder
    job: Job
    replaces: str

    @cached_property
    def label(self) -> str:
        """The run as a person tells it from the others."""
        try:
            return RunPlan.read(self.folder.plan_path).name
        except (OSError, RecordError):
            return self.folder.path.name

    @property
    def log(self) -> Path:
        """What the process that supervises the run prints, and SLURM about it."""
        return submission_folder(self.folder.path.parent, self.job.name) / f"{self.job}{LOG}"

    def new_result(self) -> RunResult | None:
        """The result of this job, not of an earlier one; None where there is none yet."""
        result = self.folder.result()
        return result if result and result.ended_at != self.replaces else None


@dataclass(frozen=True)
class Intent:
    """A run that SLURM is about to be asked to take; `task` is its place in the array, None where it is a job of its own."""

    folder: RunFolder
    name: str
    task: int | None
    replaces: str
    at: str = field(default="", compare=False)
    """When SLURM was asked, in ISO 8601, where that is noted."""

    def taken(self, array: str) -> Submitted:
        """What it is once SLURM has given this number to all jobs of its submission."""
        return Submitted(
            self.folder, Job(array if self.task is None else f"{array}_{self.task}", self.name), self.replaces
        )


def slurm_folder(sweep: Path) -> Path:
    """Where a sweep keeps what belongs to its jobs."""
    return sweep / "slurm"


def submission_folder(sweep: Path, name: str) -> Path:
    """The logs of a submission's jobs, and the script that SLURM was given."""
    return slurm_folder(sweep) / name


@contextmanager
def only_submitter(sweep: Path) -> Iterator[None]:
    """Let drivers of one sweep submit in turn, so that each sees the jobs of the others."""
    with acquire_waiting(
        slurm_folder(sweep) / ".submitters",
        lambda: say("another llmexp is submitting jobs of this sweep; waiting for it"),
    ):
        yield


def intend(intents: Iterable[Intent]) -> None:
    """Note what SLURM is about to be asked for."""
    _append((one.folder, {"name": one.name, "task": one.task, "replaces": one.replaces}) for one in intents)


def withdraw(refused: Iterable[Intent]) -> None:
    """Note that SLURM has not taken these, and never will."""
    _append(
        (one.folder, {"name": one.name, "task": one.task, "replaces": one.replaces, "refused": True}) for one in refused
    )


def note(submitted: Iterable[Submitted]) -> None:
    """Append submissions, which are then known for good."""
    _append((one.folder, {"job": one.job.number, "name": one.job.name, "replaces": one.replaces}) for one in submitted)


def submissions(folders: Iterable[RunFolder]) -> list[Submitted]:
    """The latest submission of each run that has one whose number is known."""
    return [one for sweep, named in _by_sweep(folders) for one in _latest(sweep, named)[0].values()]


def readable(folders: Sequence[RunFolder]) -> tuple[list[RunFolder], list[RecordError]]:
    """The runs of sweeps whose jobs can be read, and why those of the others cannot."""
    wrong: dict[Path, RecordError] = {}
    for sweep in dict.fromkeys(folder.path.parent for folder in folders):
        try:
            _lines(sweep)
        except RecordError as error:
            wrong[sweep] = error
    return [folder for folder in folders if folder.path.parent not in wrong], list(wrong.values())


def unanswered(folders: Iterable[RunFolder]) -> list[Intent]:
    """Runs that SLURM was asked to take last without its answer being noted, and that have not begun: the driver is at it, or was killed."""
    return [one for sweep, named in _by_sweep(folders) for one in _latest(sweep, named)[1].values()]


def run_of(sweep: Path, name: str, task: int | None) -> RunFolder | None:
    """The run of a submission's job; None where a later submission has taken its place. Raises RecordError where it was never noted."""
    noted = _lines(sweep)
    refused = {line["name"] for line in noted if "refused" in line}
    lines = [line for line in noted if "job" not in line and line["name"] not in refused]
    mine = next((str(line["folder"]) for line in lines if (line["name"], line["task"]) == (name, task)), None)
    if mine is None:
        raise RecordError(f"{_path(sweep)} does not name the run of {name}, task {task}")
    latest = [line["name"] for line in lines if line["folder"] == mine][-1]
    return RunFolder(sweep / mine) if latest == name else None


def _by_sweep(folders: Iterable[RunFolder]) -> Iterable[tuple[Path, dict[str, RunFolder]]]:
    by_sweep: dict[Path, dict[str, RunFolder]] = {}
    for folder in folders:
        by_sweep.setdefault(folder.path.parent, {})[folder.path.name] = folder
    return by_sweep.items()


def _latest(sweep: Path, named: dict[str, RunFolder]) -> tuple[dict[str, Submitted], dict[str, Intent]]:
    """Each run's latest submission, and what was asked for after it without an answer; a number that is noted late stays with its submission."""
    known: dict[str, dict[str, Submitted | Intent]] = {}
    for line in _lines(sweep):
        if folder := named.get(line["folder"]):
            by_name = known.setdefault(folder.path.name, {})
            by_name[line["name"]] = _read(folder, line)
            if "refused" in line:
                del by_name[line["name"]]
    last = {run: next(reversed(by_name.values())) for run, by_name in known.items() if by_name}
    open_ = {run: one for run, one in last.items() if isinstance(one, Intent)}
    began = {name: array for name in {one.name for one in open_.values()} if (array := _began(sweep, name))}
    taken = {run: one for run, by_name in known.items() for one in by_name.values() if isinstance(one, Submitted)}
    taken |= {run: one.taken(began[one.name]) for run, one in open_.items() if one.name in began}
    return taken, {run: one for run, one in open_.items() if one.name not in began}


def _read(folder: RunFolder, line: dict[str, Any]) -> Submitted | Intent:
    if "job" in line:
        return Submitted(folder, Job(line["job"], line["name"]), line["replaces"])
    return Intent(folder, line["name"], line["task"], line["replaces"], line.get("at", ""))


def _began(sweep: Path, name: str) -> str | None:
    """The number of a submission by the log of a job of it that has begun; None where none has."""
    return next((log.name.partition("_")[0] for log in submission_folder(sweep, name).glob(f"*{LOG}")), None)


def _lines(sweep: Path) -> list[dict[str, Any]]:
    """Raises RecordError where a line is not one of this version's."""
    lines = list(read_json_lines(_path(sweep)))
    try:
        for line in lines:
            _check(line)
    except (KeyError, TypeError) as error:
        raise unreadable_record(_path(sweep), "list of jobs", error) from None
    return lines


def _check(line: dict[str, Any]) -> None:
    """Raise KeyError, TypeError where a line is not what `_append` writes."""
    texts, task = [line[name] for name in ("folder", "name", "replaces")], None if "job" in line else line["task"]
    number = line.get("job", "0")
    if not all(isinstance(text, str) for text in (*texts, number)) or not isinstance(task, int | None):
        raise TypeError(f"a line has other values: {line}")
    if not _NUMBER.fullmatch(number):
        raise TypeError(f"'{number}' is no job's number")


def _append(lines: Iterable[tuple[RunFolder, dict[str, Any]]]) -> None:
    by_sweep: dict[Path, list[str]] = {}
    for folder, line in lines:
        record = {"folder": folder.path.name, **line, "at": now(), "written_by": __version__}
        by_sweep.setdefault(folder.path.parent, []).append(json.dumps(record) + "\n")
    for sweep, texts in by_sweep.items():
        with _path(sweep).open("ab+") as file:
            whole = "".join(texts).encode()
            file.write(b"\n" + whole if _is_cut_off(file) else whole)


def _is_cut_off(file: BinaryIO) -> bool:
    """Whether the last line has no end, as where the disk was full: what follows must not become a part of it."""
    size = file.seek(0, os.SEEK_END)
    return size > 0 and (file.seek(size - 1), file.read(1))[1] != b"\n"


def _path(sweep: Path) -> Path:
    return slurm_folder(sweep) / "jobs.jsonl"
