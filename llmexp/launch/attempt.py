"""Allow one attempt at a time in a run's folder, and keep what an earlier attempt left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from llmexp.errors import RecordError
from llmexp.record.duration import duration
from llmexp.record.folder import PREVIOUS, RunFolder
from llmexp.record.heartbeat import SILENT_S
from llmexp.record.lock import LockHeldError, acquire, lost_to, who_holds


class RunHeldError(RecordError):
    """Another driver holds this run."""


class RunLostError(RunHeldError):
    """Another driver has taken the run from this one."""


@contextmanager
def only_attempt(folder: RunFolder, ended_job: str | None = None) -> Iterator[None]:
    """Hold the folder against other drivers until the block ends, however it ends.

    Raises RunHeldError where another driver holds it. `ended_job` is a SLURM job that has ended, whatever its process
    left in the folder.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(acquire(folder.drivers, ended_job))
        except LockHeldError as error:
            raise RunHeldError(f"another llmexp is measuring this run: {error}") from None
        yield


def check_still_mine(folder: RunFolder, asking: bool = False) -> None:
    """Raise RunLostError where another driver has taken the run from this one.

    That happens where this driver stood still for long, for example on a suspended machine. Use `asking` before a write
    that would replace the other driver's file.
    """
    if taker := lost_to(folder.drivers, asking):
        silent = f"because this one showed no sign of life for {duration(SILENT_S)} or more"
        raise RunLostError(f"another llmexp has taken over this run, {silent}: {taker}")


def holder(folder: RunFolder) -> str | None:
    """Return which driver holds the run, and since when; None where none does."""
    return who_holds(folder.drivers)


def set_aside(folder: RunFolder, *more: Path, kept: int = 0) -> None:
    """Move an earlier attempt's files, and `more` of the folder, to previous/<n>/.

    Its result is the first: a result never stays without its samples. Where its first `kept` repeats stay, so do its
    events and the samples of the machine, which belong to them.
    """
    left = [
        folder.result_path,
        *folder.repeats()[kept:],
        *folder.diffs(),
        folder.figures,
        folder.breakdown_path,
        folder.timeline_path,
        *([] if kept else [*folder.systems(), folder.events_path]),
        *more,
    ]
    there = [path for path in left if path.exists()]
    if not there:
        return
    previous = folder.path / PREVIOUS
    aside = previous / str(1 + max((int(path.name) for path in previous.glob("*") if path.name.isdecimal()), default=0))
    aside.mkdir(parents=True)
    for path in there:
        path.rename(aside / path.name)
