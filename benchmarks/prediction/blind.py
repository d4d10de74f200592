"""Sources that were collected before any of their rows was predicted: how far off the predictions of that day were.

benchmarks/blind.csv keeps them as they were found, whatever is mended later: errors of step times, as in
`benchmarks.prediction.published`, by the formulas of the day before.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

BLIND = Path(__file__).parents[1] / "blind.csv"


@dataclass(frozen=True)
class Blind:
    """A source: its rows, how many had a prediction, their median error, and how many lay in their 90 % interval."""

    source: str
    rows: int
    predicted: int
    median_error_percent: float | None
    in_interval: int


def blind_sources(path: Path = BLIND) -> dict[str, Blind]:
    """Return what was found, by source."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["source"]: _read(row) for row in csv.DictReader(file)}


def _read(row: dict[str, str]) -> Blind:
    error = float(row["median_error_percent"]) if row["median_error_percent"] else None
    return Blind(row["source"], int(row["rows"]), int(row["predicted"]), error, int(row["in_interval"] or 0))


def words_of_blind() -> Iterator[str]:
    """Yield what the test found over all its sources, as lines of Markdown."""
    sources = blind_sources().values()
    errors = [one.median_error_percent for one in sources if one.median_error_percent is not None]
    rows, predicted, held = (sum(getattr(one, key) for one in sources) for key in ("rows", "predicted", "in_interval"))
    yield f"{rows} rows of {len(sources)} sources were collected before any of them was predicted, on 29 November 2026."
    yield f"The median of the medians of the {len(errors)} sources with a prediction was {median(errors):.1f} %, and"
    yield f"{held} of {predicted} rows ({held / predicted:.0%}) lay in their 90 % interval. What these rows showed was"
    yield "mended since, so that what follows is no longer blind; the last column has what was found that day. The 6"
    yield "rows of dgxc-hf were set aside after it: their times include evaluations."
