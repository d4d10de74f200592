"""A real search for the largest batch: ranks whose memory is limited, which run out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.record.folder import find_runs
from llmexp.record.plan import RunPlan

pytestmark = [pytest.mark.slow, pytest.mark.ranks]


def test_ranks_run_out_of_memory_until_the_largest_batch_is_known(llmexp, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("method=Naive", "model=tiny", "engine=torch", "engine.launcher=fork", "hardware=cpu", "precision=fp32")
    search = ("batch.micro=max", "batch.search=pow2", "hardware.memory_limit_bytes=200000000")
    code, table, said = llmexp(*words, *search, "data.seq_len=128", "measure=smoke", "tracking=none")
    assert code == 0, said
    (run,) = find_runs(tmp_path / "outputs")
    result, plan = run.result(), RunPlan.read(run.plan_path)
    trials = [(point.params["batch_micro"], point.verdicts["fits"].answer) for point in result.points]
    found = plan.batch.micro
    assert (result.status, result.evidence, result.batch.micro) == ("success", "measured", found)
    assert trials.count((found, "yes")) == 2
    assert (2 * found, "no") in trials
    assert [trial.result().status for trial in run.trials()] == [
        "success" if fits == "yes" else "oom" for _, fits in trials
    ]
    assert result.metrics["tokens_per_s"].mean > 0
    assert f"{found} a rank fits (2 of 2 tries), {2 * found} does not" in " ".join(table.split())
    assert (run.figures / "batch_search.png").exists()
    assert "trial 1, batch " in said

    code, _, said = llmexp(*words, *search, "data.seq_len=128", "measure=smoke", "tracking=none")
    assert code == 0
    assert len(run.trials()) == len(trials)
    assert "trial" not in said
