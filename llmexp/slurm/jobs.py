"""Which job runs which run: <sweep>/slurm/jobs.jsonl, a line a submission, so that any shell on any day can take over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmexp.launch.display import say
from llmexp.record.folder import RunFolder, now, read_json_lines
from llmexp.record.lock import held_in_turn
from llmexp.record.result import RunResult
from llmexp.slurm.queue import Job


@dataclass(frozen=True)
class Submitted:
    """One run's latest job; `replaces` is when the result that lay in the folder at that time had ended, '' where there was none."""

    folder: RunFolder
    job: Job
    replaces: str

    @property
    def label(self) -> str:
        """The run as a person tells it from the others."""
        return self.folder.path.name.rpartition("_")[0].replace("_", " ")

    @property
    def log(self) -> Path:
        """What the process that supervises the run prints, and SLURM about it."""
        return slurm_folder(self.folder.path.parent) / self.job.array / f"{self.job}_0_log.out"

    def new_result(self) -> RunResult | None:
        """The result of this job, not of an earlier one; None where there is none yet."""
        result = self.folder.result()
        return result if result and result.ended_at != self.replaces else None


def slurm_folder(sweep: Path) -> Path:
    """Where a sweep keeps what belongs to its jobs."""
    return sweep / "slurm"


@contextmanager
def only_submitter(sweep: Path) -> Iterator[None]:
    """Let drivers of one sweep submit in turn, so that each sees the jobs of the others."""
    with held_in_turn(slurm_folder(sweep) / ".submitters", lambda: say("another llmexp is submitting jobs of this sweep; waiting for it")):
        yield


def note(submitted: Iterable[Submitted]) -> None:
    """Append submissions, which are then known for good."""
    for one in submitted:
        line = {"folder": one.folder.path.name, "job": one.job.number, "name": one.job.name, "replaces": one.replaces, "at": now()}
        with _path(one.folder.path.parent).open("a") as file:
            file.write(json.dumps(line) + "\n")


def submissions(folders: Iterable[RunFolder]) -> list[Submitted]:
    """The latest submission of each run that has one."""
    by_sweep: dict[Path, dict[str, RunFolder]] = {}
    for folder in folders:
        by_sweep.setdefault(folder.path.parent, {})[folder.path.name] = folder
    return [one for sweep, named in by_sweep.items() for one in _latest(sweep, named)]


def _latest(sweep: Path, named: dict[str, RunFolder]) -> list[Submitted]:
    lines = {str(line["folder"]): line for line in read_json_lines(_path(sweep)) if line["folder"] in named}
    return [Submitted(named[name], Job(str(line["job"]), str(line["name"])), str(line["replaces"])) for name, line in lines.items()]


def _path(sweep: Path) -> Path:
    return slurm_folder(sweep) / "jobs.jsonl"
