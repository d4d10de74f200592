"""The entry points for the trackers beside MLflow: they compare folders with copies, and let a process write the rest.

A process can be killed when it takes too long, and what it has loaded is gone with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from llmexp.errors import RecordError
from llmexp.record.duration import limit
from llmexp.record.folder import RunFolder
from llmexp.record.redact import redact
from llmexp.record.trackers.copied import is_copied, outputs_of, scratch
from llmexp.record.trackers.summary import SyncSummary
from llmexp.registry import get_tracker
from llmexp.schema import TrackingConfig

WRITER = (sys.executable, "-m", "llmexp.record.trackers.writer")
# After one failure this process tries a tracker no more, as with MLflow.
_gave_up: set[str] = set()


def check_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError where a tracker cannot work here."""
    for name in names:
        get_tracker(name).check()


def record_also(folders: Sequence[RunFolder], tracking: TrackingConfig) -> None:
    """Copy ended runs to each tracker of tracking.also, within tracking.timeout_s.

    Where that fails, it prints so in one line and leaves the copy to `llmexp sync`.
    """
    for name in dict.fromkeys(tracking.also):
        try:
            if name not in _gave_up:
                sync_also(folders, name, tracking.experiment, tracking.timeout_s)
        except RecordError as error:
            _gave_up.add(name)
            print(
                f"llmexp: not recorded in {name}: {error}; the runs' folders have everything, "
                "`llmexp sync` records them later",
                file=sys.stderr,
            )


def sync_also(folders: Sequence[RunFolder], name: str, project: str, timeout_s: float | None = None) -> SyncSummary:
    """Record in one tracker the runs that it has not, or that have changed since; all are of one folder of outputs.

    Raises RecordError where the tracker fails.
    """
    missing = [folder for folder in folders if not is_copied(name, folder)]
    summary = SyncSummary(unchanged=len(folders) - len(missing))
    if missing:
        try:
            with scratch(name, outputs_of(missing[0])) as folder:
                told = {"tracker": name, "project": project, "scratch": str(folder)}
                paths = [str(run.path.absolute()) for run in missing]
                _add(_answers(told | {"folders": paths}, timeout_s), summary)
        except OSError as error:
            raise RecordError(f"{error.strerror}: {error.filename}") from None
    return summary


def _add(answers: Sequence[Sequence[str]], summary: SyncSummary) -> None:
    for did, why in answers:
        if did == "failed":
            raise RecordError(why)
        summary.written += did == "written"
        summary.not_ended += did == "not_ended"
        summary.unreadable += [why] if did == "unreadable" else []


def _answers(told: Mapping[str, Any], timeout_s: float | None) -> list[Sequence[str]]:
    """Let a process write, and return its answers; raises RecordError where it takes too long or breaks off."""
    with tempfile.TemporaryFile() as said:
        pipe = subprocess.PIPE
        with subprocess.Popen(
            WRITER, stdin=pipe, stdout=pipe, stderr=said, start_new_session=True, text=True
        ) as process:
            try:
                out, _ = process.communicate(json.dumps(told), timeout_s)
            except subprocess.TimeoutExpired:
                raise RecordError(f"no answer within {limit('tracking.timeout_s', timeout_s or 0)}") from None
            finally:
                _end(process)
        answers = [json.loads(line) for line in out.splitlines()]
        if process.returncode and not (answers and answers[-1][0] == "failed"):
            answers.append(("failed", _last_line(said) or f"its process ended with {process.returncode}"))
        return answers


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process that has not ended, with those of its group that its tracker started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").split("\n")
    return redact(next((line.strip() for line in reversed(lines) if line.strip()), ""))[:200]
