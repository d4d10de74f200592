"""One attempt at a time in a run's folder; what an earlier one left is kept aside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.record.lock import LockHeldError, held


@contextmanager
def only_attempt(folder: RunFolder) -> Iterator[None]:
    """Hold the folder against other drivers; however this one ends, the next may have it. Raises RecordError where another holds it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(folder.path / ".drivers"))
        except LockHeldError as error:
            raise RecordError(f"{folder.path}: another llmexp is running this very run: {error}") from None
        yield


def set_aside(folder: RunFolder) -> None:
    """Move what an earlier attempt left to previous/<n>/, its result first: a result never stands without its samples."""
    left = [folder.result_path, *folder.repeats(), *folder.diffs(), folder.system_path, folder.figures, folder.events_path]
    there = [path for path in left if path.exists()]
    if not there:
        return
    previous = folder.path / "previous"
    aside = previous / str(1 + max((int(path.name) for path in previous.glob("*")), default=0))
    aside.mkdir(parents=True)
    for path in there:
        path.rename(aside / path.name)
