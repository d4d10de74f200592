"""Measurement of the energy used between two moments, from the hardware's counters."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from time import perf_counter
from typing import Self

from llmexp.machine.energy_counters import Counter
from llmexp.record.samples import Energy


class EnergyMeter:
    """A meter that reads counters around a block; `energy` is None without counters, or where a reading failed."""

    def __init__(self, counters: Sequence[Counter] | None) -> None:
        self._counters = counters
        self.energy: Energy | None = None

    def __enter__(self) -> Self:
        self._begun_s = perf_counter()
        self._earlier_j = [counter.read() for counter in self._counters or ()]
        return self

    def __exit__(self, *_: object) -> None:
        if self._counters is not None:
            joules = {
                counter.name: counter.since(earlier_j)
                for counter, earlier_j in zip(self._counters, self._earlier_j, strict=True)
            }
            if all(map(isfinite, joules.values())):
                self.energy = Energy(seconds=perf_counter() - self._begun_s, joules=joules)

    @property
    def covers(self) -> list[str] | None:
        """The names of what this rank's counters cover; None where they could not be read."""
        return list(self.energy.joules) if self.energy else None
