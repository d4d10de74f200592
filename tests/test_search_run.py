"""A real search: one trial's ranks train to the end, the other's are ended early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs
from llmexp.sweep.search import loss_watch
from llmexp.sweep.search.study import SharedStudy

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
# Nobody waits for the second number of steps.
WORDS = (
    *("model=tiny", "model.num_layers=1", "hardware=cpu", "engine=torch", "engine.launcher=fork", "tracking=none"),
    *("data.seq_len=32", "measure=smoke", "measure.steps=2,1000000", "sweep.name=s", "--minimize", "loss", "--json"),
)


def test_a_real_trial_is_pruned_and_another_is_best(llmexp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loss_watch, "_PARTS", 1_000_000)
    monkeypatch.setattr(SharedStudy, "is_worse", lambda _, asked, *__: asked.point["measure.steps"] != "2")
    code, out, said = llmexp("search", *WORDS)
    best, pruned = map(json.loads, out.splitlines())
    assert (code, best["state"], pruned["state"]) == (0, "complete", "pruned"), said
    results = {json.loads(run.plan_path.read_text())["label"]: run.result() for run in find_runs(tmp_path / "outputs")}
    assert best["value"] == results["measure.steps=2"].metrics["final_loss"].mean
    ended = results["measure.steps=1000000"]
    assert (ended.status, ended.reason) == ("killed", pruned["reason"])
    assert "pruned at step 1 of 1000001: its loss " in pruned["reason"]
    assert (tmp_path / "outputs" / "s" / "report.md").exists()

    monkeypatch.setattr("llmexp.launch.run.run_one", lambda *_: pytest.fail("a trial was measured again"))
    code, again, _ = llmexp("search", *WORDS)
    assert (code, again) == (0, out)
