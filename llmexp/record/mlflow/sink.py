"""The entry points for MLflow; each replays run folders, so it can be called at any time, repeatedly, from anywhere."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.duration import limit
from llmexp.record.folder import RunFolder
from llmexp.record.mlflow.lookup import Known, known_runs, reported
from llmexp.record.mlflow.overview import Overview
from llmexp.record.mlflow.store import check_store, database_path, resolve_uri
from llmexp.record.mlflow.tracker import Tracker, opened
from llmexp.record.trackers.content import UnreadableError, read
from llmexp.record.trackers.summary import SyncSummary
from llmexp.schema import TrackingConfig

OUTPUTS = Path("outputs")
# From this number of runs on, looking up the whole sweep in MLflow costs less than looking up each run.
MANY = 20
_gave_up = threading.Event()


def record_runs(folders: Sequence[RunFolder], tracking: TrackingConfig) -> None:
    """Copy ended runs to the tracker within tracking.timeout_s.

    Where that fails, it prints so in one line and leaves the copy to `llmexp sync`.
    """
    if folders and tracking.name != "none":
        _attempt(lambda deadline_s: _replay(folders, tracking, deadline_s), tracking.timeout_s)


def has_report(sweep: str, digest: str, tracking: TrackingConfig, outputs: Path = OUTPUTS) -> bool:
    """Tell whether the sweep's parent run has the report of this digest; a server is not asked and counts as a no."""
    database = database_path(resolve_uri(tracking, outputs))
    return database is not None and reported(database, tracking.experiment, sweep) == [digest]


def lacks_report(sweep: str, tracking: TrackingConfig, outputs: Path = OUTPUTS) -> bool:
    """Tell whether the sweep's parent run has no report at all; a server is not asked and counts as a no."""
    database = database_path(resolve_uri(tracking, outputs))
    found = reported(database, tracking.experiment, sweep) if database else []
    return bool(found) and not any(found)


def record_report(files: Sequence[Path], digest: str, overview: Overview, tracking: TrackingConfig) -> bool:
    """Copy a sweep's report in the sweep's folder to its parent run, and a Markdown file also to its description.

    It fails in the way of `record_runs`, and then returns False.
    """
    sweep = files[0].parent if files else OUTPUTS

    def log(deadline_s: float) -> None:
        with opened(tracking, sweep.parent, deadline_s) as tracker:
            tracker.write_report(sweep.name, files, digest, overview)

    return bool(files) and tracking.name != "none" and _attempt(log, tracking.timeout_s)


def sync(folders: Sequence[RunFolder], tracking: TrackingConfig) -> SyncSummary:
    """Record the runs that are not recorded yet or have changed since.

    Raises RecordError where the tracker fails, ConfigError where its store is not safe.
    """
    if folders:
        check_store(tracking, _outputs(folders))
    return _replay(folders, tracking, math.inf) if folders else SyncSummary()


def _replay(folders: Sequence[RunFolder], tracking: TrackingConfig, deadline_s: float) -> SyncSummary:
    database = database_path(resolve_uri(tracking, _outputs(folders)))
    known = (known_runs(database, tracking.experiment) if database else None) or {}
    missing = [folder for folder in folders if not _is_copied(folder, known)]
    summary = SyncSummary(unchanged=len(folders) - len(missing))
    if not missing:
        return summary
    with opened(tracking, _outputs(folders), deadline_s) as tracker:
        for folder in missing:
            _replay_run(folder, tracker, summary, among_many=len(missing) >= MANY)
        tracker.end_sweeps()
    return summary


def _is_copied(folder: RunFolder, known: Known) -> bool:
    """Tell whether a SQLite store has the run as it is now; errors of a folder are reported where it is copied."""
    try:
        content = read(folder) if known else None
    except (RecordError, OSError):
        return False
    return content is not None and [run.digest for run in known.get((content.sweep, content.id), [])] == [
        content.digest
    ]


def _outputs(folders: Sequence[RunFolder]) -> Path:
    return folders[0].path.resolve().parents[1]


def _replay_run(folder: RunFolder, tracker: Tracker, summary: SyncSummary, among_many: bool) -> None:
    try:
        content = read(folder)
    except (RecordError, OSError) as error:
        summary.unreadable.append(str(error))
        return
    if content is None:
        summary.not_ended += 1
        return
    try:
        written = tracker.record(content, among_many)
    except UnreadableError as error:
        summary.unreadable.append(str(error))
        return
    summary.written += written
    summary.unchanged += not written


def _attempt(work: Callable[[float], object], timeout_s: float) -> bool:
    """Do the work in a thread that may be left behind, and return whether it is done.

    After one failure this process tries nothing more.
    """
    if _gave_up.is_set():
        return False
    reasons = [f"no answer within {limit('tracking.timeout_s', timeout_s)}"]

    def guarded() -> None:
        try:
            work(time.monotonic() + timeout_s)
            reasons.clear()
        except RecordError as error:
            reasons[:] = [str(error)]

    thread = threading.Thread(target=guarded, name="mlflow", daemon=True)
    thread.start()
    thread.join(timeout_s)
    for reason in list(reasons):
        _gave_up.set()
        print(
            f"llmexp: not recorded in MLflow: {reason}; the runs' folders have everything, "
            "`llmexp sync` records them later",
            file=sys.stderr,
        )
    return not reasons
