import random
from math import exp, log

import pytest

from llmexp.analysis.batch_gain import WORTH, BatchGain, batch_gain
from llmexp.record.result import Metric

TRIES = 2000


def gains(per_doubling: float, deviation: float, trials: int = 2, repeats: int = 3) -> list[BatchGain]:
    """Return the gains of simulated searches that ended at 12, whose speeds scatter normally between processes."""
    chance = random.Random(0)

    def speed(micro: int) -> float:
        return 1000 * (1 + per_doubling) ** log(micro, 2) * exp(chance.gauss(0, deviation))

    found = []
    for _ in range(TRIES):
        own = [speed(12) for _ in range(repeats)]
        mean = sum(own) / repeats
        std = (sum((one - mean) ** 2 for one in own) / (repeats - 1)) ** 0.5
        tried = {micro: [speed(micro)] for micro in (2, 4, 8)} | {12: [speed(12) for _ in range(trials)]}
        gain = batch_gain(tried, Metric(mean=mean, std_between_repeats=std, n=repeats))
        assert gain
        found.append(gain)
    return found


@pytest.mark.parametrize("deviation", [0.01, 0.03, 0.1])
@pytest.mark.parametrize(("truth", "wrong"), [(0.0, "pays"), (WORTH, "pays"), (WORTH, "saturated"), (0.2, "saturated")])
def test_a_wrong_answer_is_as_rare_as_its_interval_says(truth: float, wrong: str, deviation: float) -> None:
    answers = [gain.answer for gain in gains(truth, deviation)]
    assert answers.count(wrong) / TRIES < 0.035


def test_clear_cases_are_told_where_repeats_agree() -> None:
    assert [gain.answer for gain in gains(0.2, 0.01)].count("pays") / TRIES > 0.95
    assert [gain.answer for gain in gains(0.0, 0.005)].count("saturated") / TRIES > 0.95


def test_it_compares_with_half_of_the_largest_or_less() -> None:
    gain = batch_gain({2: [100.0], 4: [200.0], 8: [390.0], 12: [400.0, 400.0]})
    assert gain
    assert (gain.smaller, gain.largest) == (4, 12)
    assert gain.doubling.ratio == pytest.approx(2 ** (1 / log(3, 2)))


def test_nothing_is_said_of_one_batch_or_of_single_trials() -> None:
    assert batch_gain({8: [100.0, 101.0], 12: [110.0]}) is None
    assert batch_gain({4: [100.0], 8: [110.0]}) is None
    assert batch_gain({}) is None
