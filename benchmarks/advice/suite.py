"""How often a ranking finds the fastest method, as figures with the floors that advice is to reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.advice.choices import Choice, choices_of, found
from benchmarks.advice.held_out import BEST, HeldOut, without_odd
from benchmarks.figure import Figure
from benchmarks.prediction.judge import Judge
from benchmarks.rates import rate

# The best of the first three may be so far below the measured best, and the first alone.
FIRST, WITHIN, ALONE_WITHIN = 3, 0.03, 0.05
# All but one of 21 choices, and four in five, in percent.
_FLOORS = (100 * 20 / 21, 80.0)


def advice(folder: Path) -> Iterator[Figure]:
    """Yield in how many choices the first three and the first alone are good enough, by what the fit had not seen."""
    for judged in HeldOut(Judge()).all_ways():
        floors = _FLOORS if judged.name == BEST else (None, None)
        yield from figures(judged.name, choices_of(without_odd(judged)), floors)


def figures(name: str, choices: Sequence[Choice], floors: tuple[float | None, float | None]) -> Iterator[Figure]:
    """Yield both shares of some choices."""
    three, alone = found(choices, FIRST, WITHIN), found(choices, 1, ALONE_WITHIN)
    yield rate(f"best of three within 3 %, {name}", three, len(choices), floor=floors[0])
    yield rate(f"first within 5 %, {name}", alone, len(choices), floor=floors[1])
