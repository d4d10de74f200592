"""Show a run's progress on standard error: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from llmexp.launch.progress import Progress
from llmexp.record.reading import plain

PLAIN_INTERVAL_S = 10.0
Show = Callable[[], None]


@contextmanager
def display(progress: Progress) -> Iterator[Show]:
    """Yield a function that reads and shows the present state; it may be called at every tick."""
    with _living(progress) if sys.stderr.isatty() else nullcontext(_plain(progress)) as show:
        yield show


class Enduring:
    """A text stream that still works when its reader is gone, such as a closed terminal or `| head`.

    The measurement goes on, and the text is lost.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as long as there is a reader."""
        with self._for_somebody():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, as long as there is a reader."""
        with self._for_somebody():
            self._stream.flush()

    @contextmanager
    def _for_somebody(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):  # permanent, because buffered text would otherwise fail at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def enduring() -> Iterator[None]:
    """Let text that is printed within the block be lost rather than break the block."""
    with redirect_stdout(cast(TextIO, Enduring(sys.stdout))), redirect_stderr(cast(TextIO, Enduring(sys.stderr))):
        yield


def say(text: str) -> None:
    """Print one line for people."""
    print(plain(text), file=sys.stderr, flush=True)


def _plain(progress: Progress) -> Show:
    said, said_at_s = str(progress), time.monotonic()
    say(said)

    def show() -> None:
        nonlocal said, said_at_s
        progress.update()
        if str(progress) != said and time.monotonic() - said_at_s >= PLAIN_INTERVAL_S:
            said, said_at_s = str(progress), time.monotonic()
            say(said)

    return show


@contextmanager
def _living(progress: Progress) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    # Drawn at our own ticks: rich's refresh thread would wake ten times a second beside the measured ranks. The column
    # has any width and no markup, because it may hold a line of a user's program.
    text = TextColumn("{task.description}", markup=False, table_column=Column())
    with Bars(BarColumn(20), text, console=Console(stderr=True), auto_refresh=False, transient=True) as bars:
        task = bars.add_task(str(progress), total=progress.steps_in_all or None)

        def show() -> None:
            progress.update()
            bars.update(task, completed=progress.steps_done, description=str(progress), refresh=True)

        yield show
