"""Quality against bytes: which runs no other beats in both, for each model by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.report.columns import Whisker
from llmexp.report.row import Row


@dataclass(frozen=True)
class Quality:
    """A run's bytes of compressed layers and its perplexity, beside the original's; the interval is by documents."""

    row: Row
    layers_bytes: float
    perplexity: float
    original: float
    interval: Whisker | None


def qualities(rows: Sequence[Row]) -> dict[str, list[Quality]]:
    """Return what was measured, by what runs must share to be compared."""
    found: dict[str, list[Quality]] = {}
    for row in rows:
        if one := _quality(row):
            key = row.comparison_key
            found.setdefault(f"{key['model']}, {key['documents']}", []).append(one)
    return found


def _quality(row: Row) -> Quality | None:
    named = (row.metric(name) for name in ("layers_bytes", "perplexity", "original_perplexity"))
    size, after, before = (metric.mean if metric else None for metric in named)
    if size is None or after is None or before is None:
        return None
    ends = ratio_interval(row)
    return Quality(row, size, after, before, (ends[0] * before, ends[1] * before) if ends else None)


def ratio_interval(row: Row) -> Whisker | None:
    """Return the 95 % interval of a run's perplexity ratio by documents; None with one document."""
    low, high = row.metric("perplexity_ratio_low"), row.metric("perplexity_ratio_high")
    return (low.mean, high.mean) if low and high else None


def front(group: Sequence[Quality]) -> list[Quality]:
    """Return the runs than which none has as few bytes and a lower perplexity, by rising bytes."""
    found: list[Quality] = []
    for one in sorted(group, key=lambda one: (one.layers_bytes, one.perplexity)):
        if not found or one.perplexity < found[-1].perplexity:
            found.append(one)
    return found
