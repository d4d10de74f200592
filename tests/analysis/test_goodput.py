"""Where the time of a training goes that fails: by hand, by Daly's formula and by simulation."""

from __future__ import annotations

from itertools import repeat
from random import Random

import pytest

from llmexp.analysis.goodput import Interruptions, simulated, spent

MEETS = Interruptions(mtbf_s=11_000.0, checkpoint_s=30.0, restart_s=600.0)


def test_a_training_with_three_starts_by_hand():
    # Start 2, steps 4, checkpoint 1, and 2 seconds that are lost; a restart that fails; a restart, then 4 + 1 + 2 + 1.
    found = spent(10.0, Interruptions(100.0, checkpoint_s=1.0, restart_s=2.0), 4.0, [9.0, 1.0, 1000.0])
    assert (found.useful_s, found.checkpoints_s, found.lost_s, found.restarts_s) == (10.0, 3.0, 2.0, 5.0)
    assert (found.whole_s, found.failures) == (9.0 + 1.0 + 10.0, 2)


def test_a_failure_within_a_checkpoint_loses_all_since_the_one_before():
    of = Interruptions(100.0, checkpoint_s=2.0, restart_s=1.0)
    assert spent(8.0, of, 4.0, [1.0 + 4.0 + 1.9]).lost_s == pytest.approx(5.9)
    assert spent(8.0, of, 4.0, [1.0 + 4.0 + 2.1]).lost_s == pytest.approx(0.1)


def test_a_training_that_never_gets_to_a_checkpoint_gets_nowhere():
    failures = 50
    found = spent(10.0, Interruptions(9.0, checkpoint_s=1.0, restart_s=1.0), 10.0, repeat(9.0, failures))
    assert (found.failures, found.lost_s) == (failures, failures * 8.0)


@pytest.mark.parametrize("interval_s", [100.0, 800.0, 5000.0])
@pytest.mark.parametrize("of", [MEETS, Interruptions(2000.0, 200.0, 900.0)])
def test_the_simulation_agrees_with_dalys_solution(interval_s, of):
    found = simulated(2000 * of.mtbf_s * of.expected_share(interval_s), of, interval_s)
    assert found.share == pytest.approx(of.expected_share(interval_s), rel=0.01)
    assert found.share + found.checkpoints + found.lost + found.restarts == pytest.approx(1.0)


@pytest.mark.parametrize("checkpoint_s", [1.0, 30.0, 1000.0, 5000.0])
def test_no_other_interval_is_better_than_the_best(checkpoint_s):
    of = Interruptions(11_000.0, checkpoint_s, 600.0)
    best = of.expected_share(of.best_interval_s)
    # The formula is an approximation: within a ten-thousandth of the optimum.
    assert all(
        of.expected_share(factor * of.best_interval_s) < 1.0001 * best for factor in (0.5, 0.8, 0.95, 1.05, 1.25, 2)
    )
    assert of.expected_share(2 * of.best_interval_s) < best


def test_nine_of_ten_trainings_lie_in_the_interval():
    work_s, every = 60 * MEETS.mtbf_s, MEETS.best_interval_s
    found = simulated(work_s, MEETS, every)
    random = Random(7)
    shares = [
        spent(work_s, MEETS, every, iter(lambda: random.expovariate(1 / MEETS.mtbf_s), None)).share for _ in range(1000)
    ]
    assert 0.87 < sum(found.low <= share <= found.high for share in shares) / len(shares) < 0.93


def test_a_seed_repeats_a_simulation():
    assert simulated(1e6, MEETS, 800.0) == simulated(1e6, MEETS, 800.0)
    assert simulated(1e6, MEETS, 800.0) != simulated(1e6, MEETS, 800.0, seed=1)


def test_only_a_part_of_an_endless_training_is_simulated_and_its_failures_are_those_of_all():
    of = Interruptions(1000.0, 10.0, 60.0)
    found = simulated(1e9, of, 140.0)
    assert found.failures == pytest.approx(1e9 / of.expected_share(140.0) / 1000.0, rel=0.02)


def test_so_much_time_counts_as_llama_3_says_if_a_failure_costs_what_it_says():
    """More than 90 % with 466 interruptions in 54 days: each may take 16.7 minutes (arXiv 2407.21783)."""
    of = Interruptions(54 * 86_400 / 466, checkpoint_s=3.0, restart_s=600.0)
    assert 0.9 < of.expected_share(of.best_interval_s) < 0.95
