"""Curves of twenty steps, of which 5 % are one: each smoothed loss is that of its step."""

from math import exp, log, nan

import pytest

from llmexp.training.analysis.equal_loss import CostToLoss, SeedsToLoss, cost_to, default_loss, verdicts_on
from llmexp.training.convergence import LossCurve


def curve(losses, step_time_s=0.5):
    return LossCurve(tuple(range(100, 100 * len(losses) + 1, 100)), losses, step_time_s)


def costs(*values):
    return [None if value is None else CostToLoss(value, 2 * value) for value in values]


FALLING = [10.0 - step / 2 for step in range(20)]


@pytest.mark.parametrize(
    ("loss", "cost"),
    [
        (11.0, CostToLoss(100, 0.5)),  # the first step has it already
        (9.0, CostToLoss(300, 1.5)),
        (9.25, CostToLoss(250, 1.25)),  # half-way through the third
        (0.4, None),
        (nan, None),
    ],
)
def test_tokens_and_seconds_are_those_when_the_loss_is_first_reached(loss, cost):
    assert cost_to(curve(FALLING), loss) == cost


def test_a_loss_that_is_lost_again_was_reached_and_nothing_is_after_divergence():
    assert cost_to(curve([9.0, 5.0, 9.0, *[9.0] * 17]), 5.0) == CostToLoss(200, 1.0)
    assert cost_to(curve([9.0, nan, 1.0, *[1.0] * 17]), 5.0) is None


def test_the_default_loss_is_what_the_worst_seed_has_at_80_percent_rounded_up():
    slower = [loss + 0.001 for loss in FALLING]
    # Of 20 steps the sixteenth.
    assert default_loss([curve(FALLING), curve(slower)]) == 2.51
    assert cost_to(curve(slower), 2.51).tokens <= 1600
    assert default_loss([curve([9.0, 1.0, *FALLING[2:]]), curve(slower)]) == 2.51, "the least that a seed had so far"
    assert default_loss([curve([4.0])]) == 4.0
    assert default_loss([curve(FALLING), curve([*FALLING[:19], nan])]) is None
    assert default_loss([]) is None


def test_means_and_ratios_are_over_seeds_by_their_logarithms():
    found = SeedsToLoss(costs(200, 800), costs(100, 200))
    assert found.mean("tokens").ratio == pytest.approx(400)
    assert found.ratio("seconds").ratio == pytest.approx(8**0.5)
    # Student's t for one degree of freedom is 12.706; the logarithms are log 2 and log 4.
    half = 12.706 * log(2) / 2
    assert found.ratio("tokens").ratio_interval()[1] == pytest.approx(8**0.5 * exp(half), rel=1e-3)


@pytest.mark.parametrize(
    "missing", [(costs(200, None, 600), costs(100, 200, 300)), (costs(200, 300, 600), costs(100, None, 300))]
)
def test_seeds_that_do_not_reach_a_loss_leave_no_number_and_no_verdict(missing):
    found = SeedsToLoss(*missing)
    assert found.ratio("tokens") is None
    assert found.mean("tokens") is None or found.reached == 3
    assert [verdict.answer for verdict in verdicts_on([found], "tokens")] == ["unknown"]


def test_a_choice_is_told_apart_by_what_its_seeds_share_with_the_baseline():
    # The seeds differ by a factor of ten, and the choice takes a fifth more with each.
    baseline = (100, 300, 1000, 200)
    same = SeedsToLoss(costs(101, 299, 1003, 200), costs(*baseline))
    more = SeedsToLoss(costs(120, 361, 1197, 240), costs(*baseline))
    fewer = SeedsToLoss(costs(83, 251, 830, 166), costs(*baseline))
    answers = [verdict.answer for verdict in verdicts_on([same, more, fewer], "seconds")]
    assert answers == ["within", "higher", "lower"]
