"""A sweep whose repeats are interleaved: after a fault each run goes on with the repeats that it has."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.episode import Episode

REPEATS = 2


@dataclass
class InterleavedEpisode(Episode):
    """An episode of several repeats."""

    @property
    def runs(self) -> tuple[str, ...]:
        """The words of the sweep's runs."""
        return (*super().runs, "measure.order=interleaved", f"measure.repeats={REPEATS}")
