import numpy as np
import pytest
from marks import slow

from benchmarks.trust_sets import ROWS, Sets, simulated_sets
from llmexp.analysis.inference import Estimate, t_factor
from llmexp.analysis.many_rows import chance, holm, p_value, verdicts
from llmexp.record.result import Metric

SWEEPS = 300


def speed(mean, share=0.01, n=5):
    return Metric(mean=mean, std_between_repeats=share * mean if n > 1 else None, n=n)


@pytest.mark.parametrize("freedom", [1, 2, 4, 7.5, 50])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_p_values_invert_the_interval(freedom, confidence):
    assert chance(t_factor(freedom, confidence), freedom) == pytest.approx(1 - confidence, rel=1e-4)


def test_a_small_p_value_of_one_degree_of_freedom_is_the_arctangents():
    # The tail of Cauchy's distribution is 2 / pi * atan(1 / t).
    assert chance(1e6, 1) == pytest.approx(2 / np.pi * 1e-6, rel=1e-6)


def test_holm_as_worked_by_hand():
    # 4 x 0.005, 3 x 0.01, then 2 x 0.03, which 1 x 0.04 may not fall below.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_values_that_never_vary_are_told_apart_exactly():
    assert p_value(Estimate(0.0, 0.0, 8)) == 1
    assert p_value(Estimate(0.1, 0.0, 8)) == 0


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        (speed(100), speed(95), "lower"),
        (speed(100), speed(105), "higher"),
        (speed(100), speed(100.2), "within"),
        (speed(100, 0.0001), speed(99, 0.0001), "within"),
        (speed(100, 0.1), speed(99, 0.1), "unknown"),
        (speed(100, n=1), speed(50, n=1), "unknown"),
        (speed(100, n=5), speed(50, n=1), "unknown"),
        (speed(100, n=1), speed(50, n=5), "unknown"),
    ],
)
def test_answers(a, b, answer):
    assert verdicts([(a, b)])[0].answer == answer


def test_the_repeats_that_are_asked_for_would_tell():
    """With that many repeats of the same deviation and ratio there is an answer."""
    for ratio, share in ((0.99, 0.02), (0.95, 0.04), (1.04, 0.03)):
        found = verdicts([(speed(100, share), speed(100 * ratio, share))])[0]
        assert found.answer == "unknown"
        more = found.repeats or 0
        assert more > 5
        again = verdicts([(speed(100, share, more), speed(100 * ratio, share, more))])[0]
        assert again.answer != "unknown"


def test_a_wider_margin_forgives():
    pair = (speed(100), speed(95))
    assert verdicts([pair], 0.1)[0].answer == "within"


def test_more_rows_ask_for_more_evidence():
    doubtful, equal = (speed(100), speed(97.7)), (speed(100), speed(100))
    assert verdicts([doubtful])[0].answer == "lower"
    assert verdicts([doubtful, *[equal] * 39])[0].answer == "unknown"


@pytest.mark.parametrize("repeats", [2, slow(3), slow(5)])
def test_at_most_one_in_twenty_equal_sweeps_of_forty_rows_has_a_false_row(repeats):
    rng = np.random.default_rng(1)
    false = sum(
        any(verdict.answer in ("higher", "lower") for verdict in verdicts(pairs))
        for pairs in simulated_sets(rng, SWEEPS, Sets(repeats))
    )
    assert false <= SWEEPS / 20


def test_a_slowdown_of_five_percent_in_every_row_is_seen_in_nineteen_of_twenty():
    rng = np.random.default_rng(2)
    answers = [
        verdict.answer for pairs in simulated_sets(rng, 100, Sets(5, slower=ROWS)) for verdict in verdicts(pairs)
    ]
    assert answers.count("lower") >= 0.95 * len(answers)
    assert "within" not in answers


@pytest.mark.slow
def test_one_slow_row_among_forty_is_mostly_seen_and_the_others_stay_unaccused():
    rng = np.random.default_rng(3)
    sweeps = [
        [verdict.answer for verdict in verdicts(pairs)] for pairs in simulated_sets(rng, SWEEPS, Sets(5, slower=1))
    ]
    assert sum(answers[0] == "lower" for answers in sweeps) >= 0.9 * SWEEPS
    assert sum(bool({"lower", "higher"} & set(answers[1:])) for answers in sweeps) <= SWEEPS / 20


def test_a_slowdown_of_the_margin_is_called_within_noise_at_most_once_in_twenty():
    rng = np.random.default_rng(4)
    answers = [
        verdict.answer
        for pairs in simulated_sets(rng, 100, Sets(5, slower=ROWS, speed=1 / 1.02))
        for verdict in verdicts(pairs)
    ]
    assert answers.count("within") <= 0.05 * len(answers)
