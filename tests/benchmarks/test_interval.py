from __future__ import annotations

import random

import pytest

from benchmarks.interval import Interval, interval, paired_ratio


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    draw = random.Random(0)
    found = [interval([draw.gauss(3.0, 0.5) for _ in range(5)]) for _ in range(1000)]
    held = sum(one.low <= 3.0 <= one.high for one in found)
    assert 930 <= held <= 970


def test_a_limit_is_broken_when_the_lower_end_exceeds_it() -> None:
    assert Interval(1.2, 1.1, 1.3).breaks(1.09)
    assert not Interval(1.2, 1.1, 1.3).breaks(1.1)


def test_what_slows_both_of_a_pair_cancels() -> None:
    bare = [1.0, 2.0, 4.0, 1.5]
    found = paired_ratio([1.1 * one for one in bare], bare)
    assert (found.mean, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))


def test_a_ratio_and_its_inverse_agree() -> None:
    over, under = [1.0, 1.3, 0.9], [1.1, 1.0, 1.0]
    assert paired_ratio(over, under).mean == pytest.approx(1 / paired_ratio(under, over).mean)
