"""Measurement of how long a GPU's clocks were held down between two moments, and why, by NVML's counters."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Self

from llmexp.machine.throttling import throttle_counters
from llmexp.record.samples import GpuWindow

# A counter that runs faster than this counts something else, or has started again.
_LATE_S, _FAST = 1.0, 1.1


class ThrottleMeter:
    """A meter that reads the counters of the GPU with this UUID around a block.

    `found` is None without a GPU (None), NVML, its driver or any such counter.
    """

    def __init__(self, uuid: str | None) -> None:
        self.found: GpuWindow | None = None
        self._gpu = throttle_counters(uuid) if uuid else None

    def __enter__(self) -> Self:
        self._begun_s = perf_counter()
        self._earlier = self._gpu.read_ns() if self._gpu else {}
        return self

    def __exit__(self, *_: object) -> None:
        if self._gpu and self._earlier:
            later, seconds = self._gpu.read_ns(), perf_counter() - self._begun_s
            counted = {
                reason: _seconds_since(self._earlier[reason], later.get(reason, {}), seconds)
                for reason in self._earlier
            }
            known = {reason: value for reason, value in counted.items() if value is not None}
            if known:
                caps = {"power_cap_w": self._gpu.power_cap_w(), "power_cap_default_w": self._gpu.power_cap_default_w()}
                self.found = GpuWindow(index=self._gpu.index, seconds=seconds, throttled_s=known, **caps)


def _seconds_since(earlier: Mapping[int, int], later: Mapping[int, int], window_s: float) -> float | None:
    """Return the largest count of a reason's fields, in seconds; None where none of them counts time."""
    passed = [(later[field] - earlier[field]) / 1e9 for field in earlier.keys() & later.keys()]
    possible = [min(seconds, window_s) for seconds in passed if 0 <= seconds <= _FAST * window_s + _LATE_S]
    return max(possible, default=None)
