from __future__ import annotations

import pytest

from llmexp.serving.analysis.percentiles import percentile


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3.0], 99, 3.0), ([1.0, 2.0], 50, 1.5), ([4.0, 1.0, 3.0, 2.0], 0, 1.0), ([1.0, 2.0, 3.0, 4.0, 5.0], 90, 4.6)],
)
def test_a_percentile_lies_between_its_neighbors(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values have no percentile"):
        percentile([], 50)
