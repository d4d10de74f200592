"""A sweep whose repeats are interleaved: after a fault each run goes on with the repeats that it has."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.driver import Driver
from chaos.episode import ENDS_WITHIN_S, Episode

REPEATS = 2


@dataclass
class InterleavedEpisode(Episode):
    """An episode of several repeats, which may take as many times as long."""

    @property
    def runs(self) -> tuple[str, ...]:
        """The words of the sweep's runs."""
        return (*super().runs, "measure.order=interleaved", f"measure.repeats={REPEATS}")

    def _ending_of(self, driver: Driver) -> int | None:
        return driver.ends_within(REPEATS * ENDS_WITHIN_S)
