import random
from statistics import fmean

import pytest

from llmexp.analysis.inference import batch_rates, half_width_95, same_level, t_95


@pytest.mark.parametrize(("freedom", "factor"), [(1, 12.706), (2, 4.303), (10, 2.228), (11, 2.201), (30, 2.042), (120, 1.980)])
def test_students_factors_are_the_tabulated_ones(freedom, factor):
    assert t_95(freedom) == pytest.approx(factor, rel=1.2e-3)


@pytest.mark.parametrize("count", [3, 15])
def test_an_interval_holds_the_truth_19_times_in_20(count):
    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        values = [draw.gauss(100, 10) for _ in range(count)]
        held += abs(fmean(values) - 100) < half_width_95(values)
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_batches_take_every_step_once_and_their_rate_is_work_over_time():
    # 10 units of work a step, 1 s and 4 s: 20 units in 5 s.
    assert batch_rates([10, 2.5] * 4, 4) == [4.0] * 4
    assert len(batch_rates(list(range(1, 24)), 5)) == 5
    assert batch_rates([1, 1, 1, 3, 3], 2) == [1, pytest.approx(9 / 5)]


def test_one_straggler_decides_nothing_and_a_shift_does():
    base = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
    assert same_level(base, [*base[:5], 50.0]) > 0.1
    assert same_level(base, [value + 0.1 for value in base]) < 0.01
    assert same_level([1.0] * 6, [1.0] * 6) == 1


def test_a_rank_test_errs_as_seldom_as_it_says():
    draw = random.Random(2)
    alarms = sum(same_level([draw.random() for _ in range(7)], [draw.random() for _ in range(7)]) < 0.05 for _ in range(2000))
    assert 0.02 < alarms / 2000 < 0.06
