"""The record of which job runs which run: <sweep>/slurm/jobs.jsonl has a line for each submission.

Any shell can take over from it on any day. A line is written before SLURM is asked, with a name that only this
submission has. A second line adds the number that SLURM gave, or says that SLURM refused. A driver may be killed in
between: its jobs are then known by that name, in the queue or by the logs of jobs that have begun. A job finds its run
by that name too.
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

from llmexp.errors import RecordError
from llmexp.launch.display import say
from llmexp.record.folder import RunFolder
from llmexp.record.lock import acquire_waiting
from llmexp.record.plan import RunPlan
from llmexp.record.reading import read_json_lines
from llmexp.record.result import RunResult
from llmexp.record.unreadable_record import unreadable_record
from llmexp.record.writing import now
from llmexp.slurm.queue import QueuedJob
from llmexp.version import __version__

# The suffix of a job's log file, after the job's number.
LOG = "_0_log.out"
_NUMBER = re.compile(r"\d+(_\d+)?")


@dataclass(frozen=True)
class Submitted:
    """One run's latest job.

    `replaces` is the end time of the result that was in the folder at submission, '' where there was none.
    """

    folder: RunFolder
    job: QueuedJob
    replaces: str

    @cached_property
    def label(self) -> str:
        """The run's name for people, which tells it from other runs."""
        try:
            return RunPlan.read(self.folder.plan_path).name
        except (OSError, RecordError):
            return self.folder.path.name

    @property
    def log(self) -> Path:
        """The log of the process that supervises the run; SLURM's messages are in it too."""
        return submission_folder(self.folder.path.parent, self.job.name) / f"{self.job}{LOG}"

    def new_result(self) -> RunResult | None:
        """Return the result of this job, not of an earlier one; None where there is none yet."""
        result = self.folder.result()
        return result if result and result.ended_at != self.replaces else None


@dataclass(frozen=True)
class Intent:
    """A run that SLURM is about to be asked to take.

    `task` is its place in the array, None where it is a job of its own.
    """

    folder: RunFolder
    name: str
    task: int | None
    replaces: str
    at: str = field(default="", compare=False)
    """The time at which SLURM was asked, in ISO 8601, where it is recorded."""

    def taken(self, array: str) -> Submitted:
        """Return the submission after SLURM has given this number to all of its jobs."""
        return Submitted(
            self.folder, QueuedJob(array if self.task is None else f"{array}_{self.task}", self.name), self.replaces
        )


def slurm_folder(sweep: Path) -> Path:
    """Return the folder in which a sweep keeps the files of its jobs."""
    return sweep / "slurm"


def submission_folder(sweep: Path, name: str) -> Path:
    """Return the folder of a submission: its jobs' logs, and the script that SLURM was given."""
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
    """Record what SLURM is about to be asked for."""
    _append((one.folder, {"name": one.name, "task": one.task, "replaces": one.replaces}) for one in intents)


def withdraw(refused: Iterable[Intent]) -> None:
    """Record that SLURM has refused these submissions for good."""
    _append(
        (one.folder, {"name": one.name, "task": one.task, "replaces": one.replaces, "refused": True}) for one in refused
    )


def note(submitted: Iterable[Submitted]) -> None:
    """Record the job numbers of submissions, which are then known for good."""
    _append((one.folder, {"job": one.job.number, "name": one.job.name, "replaces": one.replaces}) for one in submitted)


def submissions(folders: Iterable[RunFolder]) -> list[Submitted]:
    """Return the latest submission with a known number of each run that has one."""
    return [one for sweep, named in _by_sweep(folders) for one in _latest(sweep, named)[0].values()]


def readable(folders: Sequence[RunFolder]) -> tuple[list[RunFolder], list[RecordError]]:
    """Return the runs of sweeps whose jobs can be read, and the errors of the other sweeps."""
    wrong: dict[Path, RecordError] = {}
    for sweep in dict.fromkeys(folder.sweep for folder in folders):
        try:
            _lines(sweep)
        except RecordError as error:
            wrong[sweep] = error
    return [folder for folder in folders if folder.sweep not in wrong], list(wrong.values())


def unanswered(folders: Iterable[RunFolder]) -> list[Intent]:
    """Return runs whose last request to SLURM has no recorded answer and that have not begun.

    Their driver is still submitting, or was killed.
    """
    return [one for sweep, named in _by_sweep(folders) for one in _latest(sweep, named)[1].values()]


def run_of(sweep: Path, name: str, task: int | None) -> RunFolder | None:
    """Return the run of a submission's job; None where a later submission has replaced it.

    Raises RecordError where the submission was never recorded.
    """
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
        by_sweep.setdefault(folder.sweep, {})[folder.path.name] = folder
    return by_sweep.items()


def _latest(sweep: Path, named: dict[str, RunFolder]) -> tuple[dict[str, Submitted], dict[str, Intent]]:
    """Return each run's latest submission, and each later request that has no answer.

    A number that is recorded late stays with its own submission.
    """
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
        return Submitted(folder, QueuedJob(line["job"], line["name"]), line["replaces"])
    return Intent(folder, line["name"], line["task"], line["replaces"], line.get("at", ""))


def _began(sweep: Path, name: str) -> str | None:
    """Return a submission's number, read from the log of one of its jobs; None where no job has begun."""
    return next((log.name.partition("_")[0] for log in submission_folder(sweep, name).glob(f"*{LOG}")), None)


def _lines(sweep: Path) -> list[dict[str, Any]]:
    """Return the recorded lines; raises RecordError where this version did not write a line."""
    lines = list(read_json_lines(_path(sweep)))
    try:
        for line in lines:
            _check(line)
    except (KeyError, TypeError) as error:
        raise unreadable_record(_path(sweep), "list of jobs", error) from None
    return lines


def _check(line: dict[str, Any]) -> None:
    """Raise KeyError or TypeError where a line is not what `_append` writes."""
    texts, task = [line[name] for name in ("folder", "name", "replaces")], None if "job" in line else line["task"]
    number = line.get("job", "0")
    if not all(isinstance(text, str) for text in (*texts, number)) or not isinstance(task, int | None):
        raise TypeError(f"a line has other values: {line}")
    if not _NUMBER.fullmatch(number):
        raise TypeError(f"'{number}' is not a job number")


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
    """Say whether the last line has no end, for example after a full disk: a new line must not become part of it."""
    size = file.seek(0, os.SEEK_END)
    return size > 0 and (file.seek(size - 1), file.read(1))[1] != b"\n"


def _path(sweep: Path) -> Path:
    return slurm_folder(sweep) / "jobs.jsonl"
