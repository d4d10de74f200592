from __future__ import annotations

from math import nan

import pytest

from llmexp.launch.ending import in_words
from llmexp.record.result import Metric


@pytest.fixture
def words(make_plan, folder, result_of):
    """What is said of a run of 2 + 148 steps whose result has these fields."""
    plan = make_plan("well", warmup_steps=2, steps=148)
    return lambda status, **fields: in_words(plan, folder, result_of(plan, status, **fields))


def test_a_success_says_its_last_loss_and_what_it_left(words, folder):
    loss = {"final_loss": Metric(mean=2.31449)}
    assert words("success", metrics=loss) == "success · loss 2.314 after 150 steps"
    saved = {"saved": ["repeat.0/adapter", "repeat.0/model"]}
    left = f"adapter in {folder.path}/repeat.0/adapter · model in {folder.path}/repeat.0/model"
    assert words("success", metrics=loss, what_ran=saved) == f"success · loss 2.314 after 150 steps · {left}"


def test_other_endings_say_why(words):
    assert words("failed", reason="no such thing") == "failed: no such thing"
    assert (
        words("success", reason="the loss diverged", metrics={"final_loss": Metric(mean=nan)})
        == "success: the loss diverged"
    )
