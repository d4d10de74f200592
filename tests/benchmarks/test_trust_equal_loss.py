from random import Random

import pytest

from benchmarks.trust_equal_loss import CHOICES, LossSeeds
from llmexp.analysis import many_rows


def tables_told_apart(truth: LossSeeds, tries: int = 25) -> int:
    draw = Random(1)
    return sum(bool({"lower", "higher"} & set(truth.answers(draw))) for _ in range(tries))


def test_equal_choices_are_not_told_apart_and_a_choice_of_twice_the_seconds_is():
    assert tables_told_apart(LossSeeds(5, 0.06)) <= 1
    draw = Random(0)
    assert [LossSeeds(5, 0.03, more=1.0).answers(draw)[0] for _ in range(10)].count("higher") >= 9


def test_the_simulation_sees_a_verdict_that_is_too_hasty(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(many_rows, "ERROR", 0.9)
    monkeypatch.setattr("llmexp.training.analysis.equal_loss.MARGIN", 0.0)
    assert tables_told_apart(LossSeeds(3, 0.06)) > 5


def test_the_truth_of_one_choice_is_its_own():
    answers = LossSeeds(8, 0.01, more=0.5).answers(Random(0))
    assert (answers[0], len(answers)) == ("higher", CHOICES)
    assert "higher" not in answers[1:]
