from math import log

import pytest

from benchmarks.trust_batches import Searches, answers
from llmexp.training.analysis.batch_gain import WORTH, batch_gain

TRIES = 2000


@pytest.mark.parametrize("deviation", [0.01, 0.03, 0.1])
@pytest.mark.parametrize(("truth", "wrong"), [(0.0, "pays"), (WORTH, "pays"), (WORTH, "saturated"), (0.2, "saturated")])
def test_a_wrong_answer_is_as_rare_as_its_interval_says(truth: float, wrong: str, deviation: float) -> None:
    assert answers(TRIES, Searches(truth, deviation)).count(wrong) / TRIES < 0.035


def test_clear_cases_are_told_where_repeats_agree() -> None:
    assert answers(TRIES, Searches(0.2, 0.01)).count("pays") / TRIES > 0.95
    assert answers(TRIES, Searches(0.0, 0.005)).count("saturated") / TRIES > 0.95


def test_it_compares_with_half_of_the_largest_or_less() -> None:
    gain = batch_gain({2: [100.0], 4: [200.0], 8: [390.0], 12: [400.0, 400.0]})
    assert gain
    assert (gain.smaller, gain.largest) == (4, 12)
    assert gain.doubling.ratio == pytest.approx(2 ** (1 / log(3, 2)))


def test_nothing_is_said_of_one_batch_or_of_single_trials() -> None:
    assert batch_gain({8: [100.0, 101.0], 12: [110.0]}) is None
    assert batch_gain({4: [100.0], 8: [110.0]}) is None
    assert batch_gain({}) is None
