"""Series of rows that differ in their number of ranks alone.

Weak scaling keeps the batch of a rank, strong scaling the global batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from llmexp.report.ratio import RateRatio
from llmexp.training.analysis.scaling import efficiency
from llmexp.training.report.row import TrainingRow

Kind = Literal["weak", "strong"]
KINDS: tuple[Kind, ...] = ("weak", "strong")


@dataclass(frozen=True)
class ScalingSeries:
    """Measured runs on at least two different numbers of ranks, compared with the first run on the fewest."""

    kind: Kind
    rows: tuple[TrainingRow, ...]

    @cached_property
    def least(self) -> TrainingRow:
        """The run on the fewest ranks, which counts as 100 %."""
        return min(self.rows, key=lambda row: row.processes)

    def efficiency_of(self, row: TrainingRow) -> RateRatio:
        """Return the scaling efficiency of a row, as analysis.scaling defines it."""
        return RateRatio(row, self.least, efficiency(1, row.processes, 1, self.least.processes))

    @property
    def passes_differ(self) -> bool:
        """Tell whether the size of a pass changes with the number of ranks, so that kernels do different work."""
        return len({row.batch.micro for row in self.rows}) > 1


def rate_of(row: TrainingRow) -> float:
    """Return the tokens/s of a measured run, or 0."""
    rate = row.rate
    return rate.mean if rate else 0.0


def series_of(rows: Sequence[TrainingRow]) -> list[ScalingSeries]:
    """Return all series among the measured rows, weak ones first."""
    return [series for kind in KINDS for series in _series(rows, kind)]


def scaling_legend(found: Sequence[ScalingSeries]) -> list[str]:
    """Say what the columns mean, and where a series compares unequal work or shares cores among ranks."""
    if not found:
        return []
    kinds = {series.kind for series in found}
    rows = [row for series in found for row in series.rows]
    shared = any(
        row.plan.config.hardware.device == "cpu" and not row.plan.config.measure.threads_per_rank for row in rows
    )
    lines = {
        "scaling %: tokens/s over those of the fewest ranks, times fewest over own number of ranks; ± half "
        "its 95 % interval by the repeats": True,
        "weak: one batch a rank, so more ranks have a larger global batch, and their losses are not from the same "
        "training": "weak" in kinds,
        "strong: one global batch, shared out among the ranks": "strong" in kinds,
        "strong scaling over passes of different sizes: kernels do different work on different numbers of ranks": any(
            series.passes_differ for series in found if series.kind == "strong"
        ),
        "on cpu one rank computes with all cores, so n ranks that lose nothing scale to 1/n: "
        "measure.threads_per_rank=1 gives each rank one": shared,
    }
    return [line for line, applies in lines.items() if applies]


def _series(rows: Sequence[TrainingRow], kind: Kind) -> Iterator[ScalingSeries]:
    alike: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in rows:
        if rate_of(row):
            alike.setdefault(_fixed(row, kind), []).append(row)
    return (ScalingSeries(kind, tuple(found)) for found in alike.values() if len({row.processes for row in found}) > 1)


def _fixed(row: TrainingRow, kind: Kind) -> tuple[str, ...]:
    """Return what the runs of a series share."""
    varying = ("ranks",) if kind == "weak" else ("ranks", "batch")
    return (
        row.method,
        str(row.batch.global_) * (kind == "strong"),
        *(value for name, value in row.comparison_key.items() if name not in varying),
    )
