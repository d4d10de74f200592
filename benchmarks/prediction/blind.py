"""Sources that were collected before any of their rows was predicted: how far off the predictions of that day were.

benchmarks/blind.csv keeps them as they were found, whatever is mended later: errors of step times, as in
`benchmarks.prediction.published`, by the formulas of the day before.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

BLIND = Path(__file__).parents[1] / "blind.csv"


@dataclass(frozen=True)
class Blind:
    """A source: its test and rows, how many had a prediction, their median error, and how many their interval held."""

    test: str
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
    return Blind(
        row["test"], row["source"], int(row["rows"]), int(row["predicted"]), error, int(row["in_interval"] or 0)
    )


def words_of_blind() -> Iterator[str]:
    """Yield what the tests found over all their sources, as lines of Markdown."""
    sources = blind_sources().values()
    yield "Three times rows were collected before any of them was predicted, in late November 2026:"
    yield ""
    yield "| blind test | rows | sources | with a prediction | median over them | 90 % intervals held |"
    yield "|---|---:|---:|---:|---:|---:|"
    for test in ("first", "second", "third"):
        yield _line(test, [one for one in sources if one.test == test])
    yield ""
    yield "What one test showed was mended before the next. The first set 6 rows of dgxc-hf aside afterwards, whose"
    yield "times include evaluations. In the second, rows were corrected by their sources after a first look: they now"
    yield "say which programs have fused kernels and which network, LLMQ's own casts and offloading have no plan, and"
    yield "MLPerf counts as three programs. As collected, the median was 22.4 % over 41 sources, and 51 % of 268 were"
    yield "held. No formula was changed for these figures. In the third, Adam was read as AdamW, a precision that no"
    yield "one says as mixed, and stages with a layer fewer as their source has them. One of its sources was collected"
    yield "after the others were predicted. The last column below has what each test found."
    yield ""
    yield "Then readers who saw no prediction compared the rows of 80 sources with their pages, scripts and programs"
    yield "once more. What they could prove was taken but for one line, whichever way it moved an error: 2,486 cells in"
    yield "1,027 rows, 780 of them notes."


def _line(test: str, sources: Sequence[Blind]) -> str:
    errors = [one.median_error_percent for one in sources if one.median_error_percent is not None]
    rows, predicted, held = (sum(getattr(one, key) for one in sources) for key in ("rows", "predicted", "in_interval"))
    share = f"{held} of {predicted} ({held / predicted:.0%})"
    return f"| {test} | {rows} | {len(sources)} | {len(errors)} | {median(errors):.1f} % | {share} |"
