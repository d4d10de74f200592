"""Clocks that do not disturb what they time: the host's counter on CPU, events in the stream on CUDA."""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Mark(Protocol):
    """A moment in the work of the device."""

    def passed(self) -> bool:
        """Tell, without waiting, whether the device has reached this moment."""

    def seconds_since(self, earlier: Mark) -> float:
        """Return the seconds between two passed marks of the same clock."""


class Clock(Protocol):
    """A clock that takes marks and waits for the device."""

    def mark(self) -> Mark:
        """Mark the moment at which all work issued so far will be done."""

    def synchronize(self) -> None:
        """Wait until all work issued so far is done."""


class _HostMark:
    def __init__(self) -> None:
        self.at_s = time.perf_counter()

    def passed(self) -> bool:
        return True

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, _HostMark)
        return self.at_s - earlier.at_s


class HostClock:
    """The clock of CPU ranks, whose work is done when the call returns."""

    def mark(self) -> Mark:
        """Read the host's monotonic counter."""
        return _HostMark()

    def synchronize(self) -> None:
        """Return at once, because nothing is pending on a CPU."""


class _CudaMark:
    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()

    def passed(self) -> bool:
        return bool(self.event.query())

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, _CudaMark)
        return float(earlier.event.elapsed_time(self.event)) / 1e3


class CudaClock:
    """The clock of CUDA ranks; its marks are events of the current stream.

    They are read after they have passed, so that timing adds no synchronization.
    """

    def mark(self) -> Mark:
        """Record an event."""
        return _CudaMark()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()


def unix_s(mark: Mark, of_day: tuple[Mark, float]) -> float:
    """Return the Unix time of a mark, rounded to milliseconds.

    `of_day` is an earlier mark, taken while no work was pending, with its Unix time.
    """
    earlier, at_s = of_day
    return round(at_s + mark.seconds_since(earlier), 3)


def clock_for(device: torch.device) -> Clock:
    """Return the clock for a rank's device."""
    return CudaClock() if device.type == "cuda" else HostClock()
