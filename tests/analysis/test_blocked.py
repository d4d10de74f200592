from math import log

import pytest

from llmexp.analysis.blocked import blocked_verdicts, over_blocks, shown_by
from llmexp.analysis.inference import Estimate

# Whatever the machine did meanwhile, b had 0.9 of what a had beside it.
SLOWER = [(a, 0.9 * a * more) for a, more in ((100, 1.001), (50, 0.999), (80, 1.002), (95, 0.998), (60, 1.0))]
EQUAL = [(a, b * 0.999) for a, b in ((100, 100.1), (50, 50.1), (80, 80.1), (95, 95), (60, 60))]


def answers(rows, control=None, margin=0.02):
    return [verdict.answer for verdict in blocked_verdicts(rows, control, margin)]


def test_what_meets_both_of_a_block_cancels():
    assert answers([SLOWER, EQUAL]) == ["lower", "within"]


def test_the_estimate_is_the_mean_log_ratio_of_the_blocks():
    found = over_blocks([(10, 11), (10, 12)])
    assert found
    assert found.value == pytest.approx((log(1.1) + log(1.2)) / 2)
    # Half the distance of two values is their deviation over the root of two.
    assert found.error == pytest.approx((log(1.2) - log(1.1)) / 2)
    assert found.freedom == 1


def test_no_difference_counts_that_the_control_showed_too():
    control = Estimate(log(0.88), 0.0001, 4)
    assert answers([SLOWER], control) == ["unknown"]
    assert shown_by(control, 0.02) == pytest.approx(1 / 0.88 - 1)
    assert shown_by(Estimate(0.001, 0.1, 4), 0.02) == 0.02


def test_no_row_is_surer_than_the_control():
    assert answers([SLOWER, EQUAL], Estimate(0.0, 0.2, 4)) == ["unknown", "unknown"]


def test_no_row_is_surer_than_the_median_row():
    varying = [(a, b * more) for (a, b), more in zip(EQUAL, (1, 1.3, 0.8, 1.2, 0.9), strict=True)]
    quiet = Estimate(0.0, 0.0001, 4)
    assert answers([SLOWER], quiet) == ["lower"]
    assert answers([SLOWER, varying, varying], quiet) == ["unknown", "unknown", "unknown"]


def test_a_control_that_is_far_from_itself_does_not_widen_what_counts_as_equal():
    wide = [(a, 0.95 * b) for a, b in EQUAL]
    assert answers([wide], Estimate(log(1.1), 0.001, 4)) == ["unknown"]


def test_one_block_tells_nothing_and_counts_for_no_correction():
    [alone, _] = blocked_verdicts([[(100, 50)], EQUAL], None)
    assert (alone.answer, alone.estimate) == ("unknown", None)
