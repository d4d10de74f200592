"""End a run early because whoever asked for it has seen enough, as a search does that prunes its trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from llmexp.launch.ending import Ending
from llmexp.record.result import RunStatus

# Asked with the folder of the repeat that goes on, twice a second: why the run ends here; None where it goes on.
Enough = Callable[[Path], str | None]
_asked: ContextVar[Enough | None] = ContextVar("enough", default=None)


@contextmanager
def ended_when(enough: Enough) -> Iterator[None]:
    """End runs of this thread within the block as soon as `enough` gives a reason."""
    token = _asked.set(enough)
    try:
        yield
    finally:
        _asked.reset(token)


def early_end(repeat: Path) -> Ending | None:
    """Return the ending of a run of which enough was seen; None where it goes on.

    Such a run has no answer: killed, as by a person, with the reason.
    """
    enough = _asked.get()
    why = enough(repeat) if enough else None
    return Ending(RunStatus.KILLED, why) if why else None
