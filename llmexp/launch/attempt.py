"""One attempt at a time in a run's folder; what an earlier one left is kept aside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from llmexp.errors import RecordError
from llmexp.record.duration import duration
from llmexp.record.folder import PREVIOUS, RunFolder
from llmexp.record.heartbeat import SILENT_S
from llmexp.record.lock import LockHeldError, acquire, lost_to, who_holds


class RunHeldError(RecordError):
    """Another driver is at this run."""


class RunLostError(RunHeldError):
    """Another driver has taken the run from this one."""


@contextmanager
def only_attempt(folder: RunFolder, ended_job: str | None = None) -> Iterator[None]:
    """Hold the folder against other drivers; however this one ends, the next may have it. Raises RunHeldError where another holds it.

    `ended_job` is a SLURM job that has ended, whatever its process left in the folder.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(acquire(folder.drivers, ended_job))
        except LockHeldError as error:
            raise RunHeldError(f"another llmexp is at this very run: {error}") from None
        yield


def check_still_mine(folder: RunFolder, asking: bool = False) -> None:
    """Raise RunLostError where another driver has taken the run from this one, which stood still for long, as with a suspended machine.

    `asking` is for before something is written that would be laid over the other's.
    """
    if taker := lost_to(folder.drivers, asking):
        silent = f"as this one gave no sign of life for {duration(SILENT_S)} or more"
        raise RunLostError(f"another llmexp has taken this run over, {silent}: {taker}")


def holder(folder: RunFolder) -> str | None:
    """Which driver is at the run, and since when; None where none is."""
    return who_holds(folder.drivers)


def set_aside(folder: RunFolder) -> None:
    """Move what an earlier attempt left to previous/<n>/, its result first: a result never stands without its samples."""
    left = [
        folder.result_path,
        *folder.repeats(),
        *folder.diffs(),
        *folder.systems(),
        folder.figures,
        folder.events_path,
    ]
    there = [path for path in left if path.exists()]
    if not there:
        return
    previous = folder.path / PREVIOUS
    aside = previous / str(1 + max((int(path.name) for path in previous.glob("*") if path.name.isdecimal()), default=0))
    aside.mkdir(parents=True)
    for path in there:
        path.rename(aside / path.name)
