from __future__ import annotations

import pytest

from benchmarks.figure import Figure
from benchmarks.interval import Interval


@pytest.mark.parametrize(
    ("limit", "unjudged", "verdict"),
    [(0.9, "", "BROKEN"), (1.0, "", "kept"), (1.1, "", "kept"), (None, "", "no limit"), (0.9, "busy", "not judged: busy")],
)
def test_only_a_lower_end_above_an_applicable_limit_breaks_it(limit: float | None, unjudged: str, verdict: str) -> None:
    figure = Figure("a", "s", Interval(1.05, 1.0, 1.1), 5, limit, unjudged)
    assert figure.verdict == verdict
    assert figure.broken == (verdict == "BROKEN")
