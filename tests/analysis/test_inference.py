import random
from math import exp, log, sqrt
from statistics import fmean

import pytest

from llmexp.analysis.inference import (
    Estimate,
    apart,
    batch_levels,
    batch_rates,
    half_width,
    log_ratio,
    of_repeats,
    repeats_for,
    t_factor,
    trend,
    wilson,
)
from llmexp.record.result import Metric


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 2.7, 4, 9, 26, 120, 1999, 5000])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99, 0.995])
def test_students_factors_are_scipys(freedom, confidence):
    from scipy.special import stdtrit

    assert t_factor(freedom, confidence) == pytest.approx(
        stdtrit(freedom, (1 + confidence) / 2), rel=1e-5 if freedom < 2000 else 2e-3
    )


@pytest.mark.parametrize(("kept", "count"), [(1.0, 50), (0.9, 100), (0.5, 7), (0.0, 12), (0.99, 2000)])
def test_the_interval_of_a_share_is_wilsons(kept, count):
    from scipy.stats import binomtest

    found = binomtest(round(kept * count), count).proportion_ci(0.98, method="wilson")
    share = round(kept * count) / count
    assert wilson(share, count, 0.98) == (pytest.approx(found.low, abs=1e-9), pytest.approx(found.high, abs=1e-9))


@pytest.mark.parametrize("count", [3, 15])
def test_an_interval_holds_the_truth_19_times_in_20(count):
    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        values = [draw.gauss(100, 10) for _ in range(count)]
        held += abs(fmean(values) - 100) < half_width(values)
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_repeats_that_suffice_are_told_from_how_far_they_differ():
    # t of 5 degrees of freedom 2.571: 2.571 x 4 % / sqrt(6) = 4.2 %; with one less 2.776 x 4 % / sqrt(5) = 4.97 %.
    assert (repeats_for(0.04, 0.05), repeats_for(0.0401, 0.0497)) == (5, 6)
    assert repeats_for(1.0, 0.05) is None


def test_batches_take_every_step_once_and_their_rate_is_work_over_time():
    # 10 units of work a step, 1 s and 4 s: 20 units in 5 s.
    assert batch_rates([10, 2.5] * 4, 4) == [4.0] * 4
    assert len(batch_rates(list(range(1, 24)), 5)) == 5
    assert batch_rates([1, 1, 1, 3, 3], 2) == [1, pytest.approx(9 / 5)]


def test_one_straggler_decides_nothing_of_a_batch():
    assert batch_levels([1, 1, 1, 50, 2, 2, 2, 2], 2) == [0, log(2)]


def test_a_ratio_is_welchs_where_both_vary_and_lends_the_scatter_of_one_where_the_other_is_alone():
    both = log_ratio(Metric(mean=100, std_between_repeats=3.0, n=3), Metric(mean=200, std_between_repeats=8.0, n=4))
    # 3 % / sqrt(3) and 4 % / sqrt(4).
    assert (both.ratio, both.error) == (pytest.approx(2), pytest.approx(sqrt(0.0003 + 0.0004)))
    assert both.freedom == pytest.approx(0.0007**2 / (0.0003**2 / 2 + 0.0004**2 / 3))
    lent = log_ratio(Metric(mean=100, n=1), Metric(mean=200, std_between_repeats=8.0, n=4))
    assert (lent.error, lent.freedom) == (pytest.approx(0.04 * sqrt(1 + 1 / 4)), 3)
    assert log_ratio(Metric(mean=100, n=1), Metric(mean=200, n=1)) is None
    assert of_repeats(Metric(mean=100, std_between_repeats=None, n=1)) is None


def test_an_estimate_tells_what_it_rules_out():
    sure, vague = Estimate(log(1.1), 0.01, 30), Estimate(log(1.1), 0.2, 30)
    assert (sure.differs(0.95), vague.differs(0.95)) == (True, False)
    low, high = sure.ratio_interval()
    assert low == pytest.approx(exp(log(1.1) - 2.042 * 0.01), rel=1e-4)
    assert low < sure.ratio < high
    assert sure.is_within(0.13, 0.95)
    assert not sure.is_within(0.12, 0.95)
    assert not vague.is_within(0.2, 0.95)


def test_what_is_not_known_at_all_has_an_interval_without_bounds():
    low, high = Estimate(0.0, 1e4, 1).ratio_interval()
    assert low < 1e-300
    assert high > 1e300


def test_a_trend_is_the_slope_that_all_series_share():
    series = [[level + 0.01 * place for place in range(10)] for level in (1.0, 5.0, 3.0)]
    found = trend(series, 2 / 3)
    assert found.value == pytest.approx(0.1 * 2 / 3)
    assert (found.error, found.freedom) == (pytest.approx(0, abs=1e-9), 26)


def test_a_trend_and_an_end_err_less_often_than_they_say_though_values_depend_on_each_other():
    draw, tries = random.Random(2), 1000

    def dependent(count):
        values = [draw.gauss(0, 1)]
        while len(values) < count:
            values.append(0.35 * values[-1] + draw.gauss(0, sqrt(1 - 0.35**2)))
        return values

    drawn = [[dependent(11) for _ in range(3)] for _ in range(tries)]
    assert sum(trend([values[1:] for values in series], 1).differs(0.95) for series in drawn) / tries < 0.06
    assert (
        sum(
            apart([values[0] for values in series], [values[1:] for values in series]).differs(0.95) for series in drawn
        )
        / tries
        < 0.06
    )
