"""Clocks that don't disturb what they time: the host's counter on CPU, events in the stream on CUDA."""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Mark(Protocol):
    """A moment in the work of the device."""

    def passed(self) -> bool:
        """Whether the device has got there; never waits."""

    def seconds_since(self, earlier: Mark) -> float:
        """Seconds between two passed marks of the same clock."""


class Clock(Protocol):
    """Takes marks, and waits for the device."""

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
    """For CPU ranks, whose work is done when the call returns."""

    def mark(self) -> Mark:
        """Read the host's monotonic counter."""
        return _HostMark()

    def synchronize(self) -> None:
        """Nothing is pending on a CPU."""


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
    """For CUDA ranks: marks are events of the current stream, read when they have passed, so that timing adds no synchronisation."""

    def mark(self) -> Mark:
        """Record an event."""
        return _CudaMark()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()


def unix_s(mark: Mark, of_day: tuple[Mark, float]) -> float:
    """The Unix time of a mark, to the millisecond, by an earlier one that was taken at a known time with no work pending."""
    earlier, at_s = of_day
    return round(at_s + mark.seconds_since(earlier), 3)


def clock_for(device: torch.device) -> Clock:
    """The clock of a rank's device."""
    return CudaClock() if device.type == "cuda" else HostClock()
