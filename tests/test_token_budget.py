"""A budget of tokens as a person types it, on real ranks and real text.

The tests tell who learns, who learns otherwise, and who never does.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from math import isnan, log
from pathlib import Path

import pytest
from matplotlib.image import imread
from patience import HANG_S

from llmexp.record.folder import find_runs

pytestmark = [pytest.mark.ranks, pytest.mark.slow]
TOKENS = 12_000
# Steps of 256 tokens, in fp32 and on one core, so that losses repeat to the last digits.
WORDS = (
    *("hardware=cpu", "engine.launcher=fork"),
    *("parallelism.dp=1", "engine=torch", "precision=fp32", "measure.profile=false", "measure.threads_per_rank=1"),
    *("data.seq_len=64", "batch.micro=4", f"measure.tokens={TOKENS}"),
)


def run(folder: Path, *words: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")} | {
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "300",
    }
    command = [sys.executable, "-m", "llmexp", *WORDS, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def final_losses(folder: Path, key: str) -> dict[str, float]:
    with (folder / "outputs" / "main" / "report.csv").open() as file:
        return {
            next(word for word in row["command"].split() if word.startswith(key)): float(row["smoothed_final_loss"])
            for row in csv.DictReader(file)
        }


def test_methods_on_one_budget_are_held_against_naive_and_recorded(tmp_path: Path) -> None:
    said = run(tmp_path, "method=Naive,F,Q", "optimizer.lr=1e-3")
    losses = final_losses(tmp_path, "method=")
    assert losses["method=Naive"] < log(257) - 1, "it has learned more than how often each byte occurs at random"
    assert losses["method=F"] == pytest.approx(losses["method=Naive"], abs=2e-3), "the same mathematics"
    assert abs(losses["method=Q"] - losses["method=Naive"]) > 0.02, "frozen matrices learn otherwise"
    assert "baseline: Naive" in said
    for folder in find_runs(tmp_path / "outputs"):
        result = folder.result()
        assert result is not None
        trained = result.metrics["trained_tokens"]
        assert trained is not None
        assert trained.mean == 12_032, "47 steps of 256"
        assert result.what_ran["data_passes"] == 1
    assert imread(tmp_path / "outputs" / "main" / "report_loss.png").shape[1] == 1260


def test_several_seeds_say_what_a_choice_takes_to_an_equal_loss(tmp_path: Path) -> None:
    said = run(tmp_path, "method=Naive,Q", "seed=0,1", "optimizer.lr=1e-3", "tracking=none")
    _, _, table = said.partition("At equal loss")
    naive, q = (next(line for line in table.splitlines() if f" {name} " in line) for name in ("Naive", "Q"))
    assert "baseline: Naive," in table
    assert naive.count(" to ") == 2, "the baseline reaches its own loss, with an interval of tokens and of seconds"
    assert q.count(" to ") == 4 or "not reached by" in q


@pytest.mark.sweep
def test_a_learning_rate_of_zero_never_gets_there_one_of_1e20_diverges_and_short_text_is_read_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "short.txt").write_text("All work and no play makes Jack a dull boy. " * 100)
    said = run(tmp_path, "optimizer.lr=1e-3,0,1e20", "tracking=none", "data.files=[short.txt]")
    losses = final_losses(tmp_path, "optimizer.lr=")
    assert losses["optimizer.lr=0"] > log(257) > losses["optimizer.lr=0.001"]
    assert isnan(losses["optimizer.lr=1e+20"]) or losses["optimizer.lr=1e+20"] > 100
    row = next(line for line in said.splitlines() if "optimizer.lr=0 " in line)
    assert "never" in row
    # 4,400 bytes and one end: 68 sequences of 64 for the 188 of 47 steps.
    assert "all of it was read by Naive optimizer.lr=0.001 2.76 times" in said
