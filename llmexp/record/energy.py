"""Energy between two moments, from counters that the hardware keeps."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from time import perf_counter
from typing import Self

from llmexp.machine.energy_counters import Counter
from llmexp.record.samples import Energy


class EnergyMeter:
    """Reads its counters around a block; `energy` is None where they could not be read, as without counters (None)."""

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
        """What this rank's counters cover; None where they could not be read."""
        return list(self.energy.joules) if self.energy else None
