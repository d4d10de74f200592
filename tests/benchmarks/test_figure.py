from __future__ import annotations

import pytest

from benchmarks.figure import Figure
from benchmarks.interval import Interval
from benchmarks.rates import held_rate


@pytest.mark.parametrize(
    ("limit", "unjudged", "verdict"),
    [
        (0.9, "", "BROKEN"),
        (1.0, "", "kept"),
        (1.1, "", "kept"),
        (None, "", "no limit"),
        (0.9, "busy", "not judged: busy"),
    ],
)
def test_only_a_lower_end_above_an_applicable_limit_breaks_it(limit: float | None, unjudged: str, verdict: str) -> None:
    figure = Figure("a", "s", Interval(1.05, 1.0, 1.1), 5, limit, unjudged=unjudged)
    assert figure.verdict == verdict
    assert figure.broken == (verdict == "BROKEN")


@pytest.mark.parametrize(("floor", "verdict"), [(1.2, "BROKEN"), (1.1, "kept"), (0.9, "kept")])
def test_only_an_upper_end_below_a_floor_breaks_it(floor: float, verdict: str) -> None:
    figure = Figure("a", "x", Interval(1.05, 1.0, 1.1), 5, floor=floor)
    assert (figure.verdict, figure.bounds) == (verdict, f">= {floor:g}")


@pytest.mark.parametrize(
    ("held", "verdict"), [(70, "BROKEN"), (82, "kept"), (90, "kept"), (97, "kept"), (100, "BROKEN")]
)
def test_an_interval_may_hold_too_few_or_too_many(held: int, verdict: str) -> None:
    figure = held_rate("a", held, 100)
    assert (figure.verdict, figure.bounds) == (verdict, "85 to 95")
