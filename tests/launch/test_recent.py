from __future__ import annotations

import pytest

from llmexp.launch.recent import FEWEST, Recent
from llmexp.record.samples import Sample


def sample(start_s: float, end_s: float) -> Sample:
    return Sample(index=0, warmup=False, t_start_s=start_s, t_end_s=end_s)


def pace(samples: list[Sample]) -> float:
    recent = Recent()
    recent.extend(samples)
    return recent.amount / recent.seconds


def test_steps_that_follow_each_other_are_judged_by_the_last_ones():
    slow = [sample(step, step + 1) for step in range(5)]
    fast = [sample(5 + step / 4, 5 + (step + 1) / 4) for step in range(FEWEST)]
    assert pace(slow) == pytest.approx(1)
    assert pace(slow + fast) == pytest.approx(4)


@pytest.mark.parametrize("latency_s", [0.1, 1, 80])
def test_requests_are_counted_by_their_ends_however_long_they_waited(latency_s: float):
    ends_s = [latency_s + index / 8 for index in range(2000)]
    assert pace([sample(end_s - latency_s, end_s) for end_s in ends_s]) == pytest.approx(8, rel=0.01)


def test_a_batch_that_ends_at_one_moment_took_its_time():
    batches = [sample(begin_s, begin_s + 2) for begin_s in (0, 2, 4) for _ in range(64)]
    assert pace(batches[:64]) == pytest.approx(32)
    assert pace(batches) == pytest.approx(32)


def test_what_is_forgotten_counts_no_more():
    recent = Recent()
    recent.extend([sample(0, 5)])
    recent.clear()
    assert not recent
    recent.extend([sample(7, 8)])
    assert recent.seconds == pytest.approx(1)
