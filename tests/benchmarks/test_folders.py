from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.folders import multiply
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import RunResult
from llmexp.training.plan.training_plan import TrainingPlan


def test_copies_are_runs_of_their_own(
    tmp_path: Path, tiny_plan: Callable[..., TrainingPlan], result_of: Callable[..., RunResult], write_samples
) -> None:
    plan = tiny_plan("F")
    seed = RunFolder(tmp_path / "seed")
    seed.write(seed.plan_path, plan)
    seed.event("running")
    write_samples(seed.repeat(0), 0, [(1.0, 1.0)] * 3)
    seed.write(seed.result_path, result_of(plan, "success"))
    made = multiply([seed], tmp_path / "many", sweeps=2, runs=3)
    assert {run.path for run in made} == {run.path for run in find_runs(tmp_path / "many")}
    plans = [TrainingPlan.read(run.plan_path) for run in made]
    assert len({plan.id for plan in plans}) == 3
    assert [plan.config.sweep.name for plan in plans] == ["sweep000"] * 3 + ["sweep001"] * 3
    for run, copied in zip(made, plans, strict=True):
        assert run.path.name == copied.folder_name
        assert json.loads(run.result_path.read_text())["id"] == copied.id
        assert run.state() == "success"
        assert (run.repeat(0) / "samples.0.jsonl").read_text() == (seed.repeat(0) / "samples.0.jsonl").read_text()
