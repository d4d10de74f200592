"""Signals that end a run: the first one interrupts it, and whatever follows must not keep it from writing its result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Never

from llmexp.launch.ending import Ending
from llmexp.record.result import RunStatus


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


class OutOfTime(KeyboardInterrupt):
    """SIGUSR2, by which SLURM says that the job's time limit is near."""


INTERRUPTS = {signal.SIGTERM: Terminated, signal.SIGUSR2: OutOfTime}


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Raise Terminated at SIGTERM and OutOfTime at SIGUSR2 within the block, once; outside the main thread signals cannot be taken."""
    if not _takes_signals():
        yield
        return
    earlier = {number: signal.signal(number, _interrupt) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler or signal.SIG_DFL)


def ignore_signals() -> None:
    """From now on, let none of them interrupt: SLURM sends SIGTERM to a job's step and to the job."""
    if _takes_signals():
        for number in INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)


def interrupted_by(interruption: KeyboardInterrupt) -> Ending:
    """How a run ended that was interrupted."""
    if isinstance(interruption, OutOfTime):
        return Ending(RunStatus.TIMEOUT, "SLURM's time limit for the job, of which it warned with SIGUSR2")
    return Ending(RunStatus.KILLED, "terminated by SIGTERM" if isinstance(interruption, Terminated) else "interrupted by the user")


def _takes_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


def _interrupt(number: int, frame: FrameType | None) -> Never:
    ignore_signals()
    raise INTERRUPTS[signal.Signals(number)]
