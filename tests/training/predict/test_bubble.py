"""How long stages wait, counted by hand."""

from __future__ import annotations

import pytest

from llmexp.training.plan.dims import ParallelDims
from llmexp.training.predict.bubble import bubble_share


def dims(pp: int, schedule: str | None, virtual_stages: int = 1) -> ParallelDims:
    return ParallelDims(dp=1, tp=1, pp=pp, cp=1, ep=1, schedule=schedule, virtual_stages=virtual_stages)


@pytest.mark.parametrize(
    ("pp", "schedule", "stages", "passes", "share"),
    [
        (1, None, 1, 8, 0.0),
        (4, "gpipe", 1, 8, 3 / 8),
        (4, "1f1b", 1, 8, 3 / 8),
        (4, "interleaved", 2, 8, 3 / 16),
        (4, "looped_bfs", 3, 8, 3 / 24),
        (4, "zero_bubble", 1, 8, 1 / 8),
    ],
)
def test_the_bubble_follows_the_schedules_formula(pp, schedule, stages, passes, share) -> None:
    assert bubble_share(dims(pp, schedule, stages), passes) == pytest.approx(share)


def test_v_shaped_schedules_wait_less_than_those_that_only_split_backward() -> None:
    split = bubble_share(dims(4, "zero_bubble"), 8)
    for schedule in ("zbv", "dualpipev"):
        assert 0 < bubble_share(dims(4, schedule, 2), 8) < split
