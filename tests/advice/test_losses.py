"""Losses at equal tokens that earlier runs know."""

from __future__ import annotations

from pathlib import Path

from llmexp.advice.losses import losses_known

TRAINED = {"trained_tokens": 1e5}


def test_losses_stand_beside_the_plain_one_of_as_many_tokens(make_run, tiny_plan, tmp_path: Path) -> None:
    make_run("F", metrics=TRAINED | {"smoothed_final_loss": 2.1234})
    make_run("F+R", metrics=TRAINED | {"smoothed_final_loss": 2.1236})
    make_run("Q+F", metrics=TRAINED | {"smoothed_final_loss": 2.5})
    make_run("Q", metrics={"trained_tokens": 2e5, "smoothed_final_loss": 2.4})
    make_run("R", metrics={"tokens_per_s": 1.0})
    assert losses_known(tmp_path, tiny_plan("F")) == [
        "loss after 100,000 tokens in earlier runs: plain 2.123; 4-bit weights 2.500"
    ]


def test_runs_of_another_model_or_that_failed_know_nothing(make_run, tiny_plan, tmp_path: Path) -> None:
    make_run("F", metrics=TRAINED | {"smoothed_final_loss": 2.0})
    make_run("Q+F", "failed", metrics=TRAINED | {"smoothed_final_loss": 2.5})
    assert losses_known(tmp_path, tiny_plan("F")) == []
    assert losses_known(tmp_path / "none", tiny_plan("F")) == []
