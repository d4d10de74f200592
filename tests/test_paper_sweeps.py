"""The paper's scaling and its comparison of engines, on one and two real ranks.

What the tables derive is what the runs' own figures give.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread
from patience import HANG_S

pytestmark = pytest.mark.sweep
WORDS = (
    *("model=tiny", "hardware=cpu", "measure=smoke", "measure.profile=false", "measure.threads_per_rank=1"),
    *("data.seq_len=32", "tracking=none"),
)


def run(folder: Path, *words: str) -> str:
    environment = dict(os.environ) | {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", *WORDS, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(folder: Path, sweep: str) -> list[dict[str, str]]:
    with (folder / "outputs" / sweep / "report.csv").open() as file:
        return list(csv.DictReader(file))


def test_figure_4_on_one_and_two_ranks_is_weak_and_strong_scaling_of_the_same_training(tmp_path: Path) -> None:
    said = run(tmp_path, "experiment=paper_fig04", "parallelism.dp=1,2")
    found = {(int(row["processes"]), int(row["batch_accumulation"])): row for row in rows(tmp_path, "paper_fig04")}
    assert {key: (row["method"], row["state"]) for key, row in found.items()} == dict.fromkeys(
        [(1, 1), (1, 8), (2, 1), (2, 4)], ("Q", "success")
    )
    for kind, one, two in (("weak", (1, 1), (2, 1)), ("strong", (1, 8), (2, 4))):
        rates = [float(found[key]["tokens_per_s"]) for key in (one, two)]
        assert float(found[one][f"{kind}_scaling_efficiency"]) == 1
        assert float(found[two][f"{kind}_scaling_efficiency"]) == pytest.approx(rates[1] / (2 * rates[0]))
    assert "the same training on deepspeed and deepspeed dp 2" in said
    assert imread(tmp_path / "outputs" / "paper_fig04" / "report_scaling.png").shape[1] == 1260


def test_table_ii_measures_both_engines_on_the_same_training(tmp_path: Path) -> None:
    said = run(tmp_path, "experiment=paper_table02", "batch.micro=1")
    assert [(row["engine"], row["method"], row["state"]) for row in rows(tmp_path, "paper_table02")] == [
        ("deepspeed", "Naive", "success"),
        ("megatron", "Naive", "success"),
        ("megatron", "Z1", "success"),
    ]
    assert "the same training on deepspeed dp 2 and megatron dp 2" in said
