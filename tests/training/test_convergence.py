"""Curves small enough to be worked out by hand."""

from math import isnan, nan

import pytest

from llmexp.training.convergence import LossCurve, curve_of, divergence
from llmexp.training.metrics import METRICS
from llmexp.training.repeats import RunConstants, read_training

# 40 steps of 10 tokens: 5 % are 2 steps, so that each smoothed loss is the mean of two.
FALLING = [8.0, 6.0, *[4.0] * 18, *[2.0] * 20]


def curve(losses, step_time_s=0.5):
    return LossCurve(tuple(range(10, 10 * len(losses) + 1, 10)), losses, step_time_s)


def test_a_smoothed_loss_is_the_mean_of_the_last_5_percent_of_all_steps_as_far_as_there_are_so_many():
    assert curve(FALLING).smoothed == [8.0, 7.0, 5.0, *[4.0] * 17, 3.0, *[2.0] * 19]
    assert curve(FALLING).final_loss == 2.0
    assert curve([3.0, 1.0]).smoothed == [3.0, 1.0], "of few steps each stands alone"


def test_a_loss_is_asked_for_at_tokens_and_is_that_of_the_last_step_within_them():
    assert [curve(FALLING).loss_at(tokens) for tokens in (10, 19, 20, 210, 10_000)] == [8.0, 8.0, 7.0, 3.0, 2.0]
    assert isnan(curve(FALLING).loss_at(9))


@pytest.mark.parametrize(
    ("loss", "seconds"),
    [
        (8.0, 0.5),  # from the first step on
        (4.0, 2.0),  # smoothed 4.0 first after 4 steps of half a second
        (3.99, 2.0),  # 4.0 is within 0.5 % above it
        (3.98, 10.5),  # and not of this one: 3.0 after 21 steps
        (1.991, 11.0),  # 2.0 is within 0.5 % above it, after 22 steps
        (1.98, None),
        (nan, None),
    ],
)
def test_time_to_a_loss_is_steps_times_step_time(loss, seconds):
    assert curve(FALLING).seconds_to(loss) == seconds


def test_a_loss_counts_as_reached_only_where_it_is_kept():
    # Smoothed: 5 at first, 1 after 22 steps, 5 again after 32, 1 to stay after 37.
    losses = [5.0] * 20 + [1.0] * 10 + [5.0] * 5 + [1.0] * 5
    assert curve(losses).seconds_to(1.0) == 37 * 0.5
    assert curve([*losses[:-1], 5.0]).seconds_to(1.0) is None


def test_from_the_first_loss_that_is_no_number_on_there_is_none():
    diverged = curve([2.0, 1.0, nan, 1.0])
    assert [str(loss) for loss in diverged.smoothed] == ["2.0", "1.0", "nan", "nan"]
    assert (diverged.diverged_at, curve(FALLING).diverged_at) == (2, None)
    assert diverged.seconds_to(5.0) is None


def test_a_curve_counts_warm_up_replicas_and_repeats_but_no_rank_of_a_replica_twice(write_repeat):
    # Two replicas of two ranks each: 60 real tokens a replica and step. The step time leaves the warm-up out.
    def repeat(index, losses, step_s):
        steps = [(9.0, 70, 60, losses[0]), *((step_s, 70, 60, loss) for loss in losses[1:])]
        return read_training(write_repeat(index, {rank: {} for rank in range(4)}, dict.fromkeys(range(4), steps)), 4)

    found = curve_of(
        [repeat(0, [6.0, 4.0, 2.0], 1.0), repeat(1, [8.0, 6.0, 4.0], 3.0)], RunConstants(world_size=4, dp=2)
    )
    assert found == LossCurve((120, 240, 360), (7.0, 5.0, 3.0), 2.0)


def test_metrics_of_the_curve_belong_to_budgets_of_tokens(write_repeat):
    folder = write_repeat(0, {0: {}}, {0: [(1.0, 50, 50, 4.0), (1.0, 50, 50, 3.0)]})
    with_budget, without = (
        METRICS.measure([read_training(folder, 1)], RunConstants(world_size=1, dp=1, has_budget=bool(budget)))
        for budget in (100, None)
    )
    assert (with_budget["trained_tokens"].mean, with_budget["smoothed_final_loss"].mean) == (100, 3.0)
    assert without["trained_tokens"] is without["smoothed_final_loss"] is None


def test_divergence_names_the_first_step_whose_loss_is_no_number_on_any_rank(write_repeat):
    sound, lost = [(1.0, 5, 5, 2.0)] * 4, [(1.0, 5, 5, loss) for loss in (2.0, 2.0, nan, nan)]
    repeats = [
        read_training(write_repeat(index, {0: {}, 1: {}}, {0: sound, 1: other}), 2)
        for index, other in enumerate((sound, lost))
    ]
    assert divergence(repeats[:1]) == ""
    assert divergence(repeats) == "the loss diverged: no finite number at step 2 of repeat 1"
