"""Signals that end a run: the first one interrupts it, and later ones must not keep it from writing its result."""

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
    """SIGTERM came; it ends a run as Ctrl-C does."""


class HungUp(KeyboardInterrupt):
    """SIGHUP came: the terminal is gone."""


class OutOfTime(KeyboardInterrupt):
    """SIGUSR2 came: SLURM warns that the job's time limit is near."""


class Waited(KeyboardInterrupt):
    """The sweep was interrupted while another of its runs was measured."""


INTERRUPTS = {signal.SIGTERM: Terminated, signal.SIGHUP: HungUp, signal.SIGUSR2: OutOfTime}
TOLD = {
    Terminated: "terminated by SIGTERM",
    HungUp: "its terminal was closed (SIGHUP)",
    Waited: "its sweep was interrupted while it waited for its next repeat",
}


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Raise Terminated at SIGTERM, HungUp at SIGHUP and OutOfTime at SIGUSR2 within the block, once.

    Outside the main thread signals cannot be handled. SIGHUP stays ignored where it already is, as by nohup.
    """
    if not _takes_signals():
        yield
        return
    hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    earlier = {
        number: signal.signal(number, _interrupt)
        for number in INTERRUPTS
        if not (number == signal.SIGHUP and hangup_ignored)
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler or signal.SIG_DFL)


def ignore_signals() -> None:
    """Ignore all of these signals from now on: SLURM sends SIGTERM both to a job's step and to the job."""
    if _takes_signals():
        for number in INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore all of these signals within the block."""
    earlier = {number: signal.getsignal(number) for number in INTERRUPTS} if _takes_signals() else {}
    ignore_signals()
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler or signal.SIG_DFL)


def interrupted_by(interruption: KeyboardInterrupt) -> Ending:
    """Return the ending of a run that was interrupted."""
    if isinstance(interruption, OutOfTime):
        return Ending(RunStatus.TIMEOUT, "SLURM's time limit for the job (SIGUSR2 was its warning)")
    return Ending(RunStatus.KILLED, TOLD.get(type(interruption), "interrupted by the user"))


def _takes_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


def _interrupt(number: int, frame: FrameType | None) -> Never:
    ignore_signals()
    raise INTERRUPTS[signal.Signals(number)]
