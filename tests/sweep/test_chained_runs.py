"""Runs that start from the model of another run of their sweep, with ranks that leave what they are told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.core.utils import JobReturn, JobStatus
from safetensors.numpy import save_file

from llmexp.cli.arguments import run_parser
from llmexp.cli.launchers import PlannedTask, RunsByLauncher
from llmexp.cli.words import jobs_of
from llmexp.inputs.checkpoint import Checkpoint
from llmexp.launch.ending import SUCCESS, Ending
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunResult, RunStatus, to_json
from llmexp.record.samples import TrainingSummary
from llmexp.record.skip import SkipCode
from llmexp.schema import BudgetConfig
from llmexp.sweep.budget import within_budget
from llmexp.sweep.cost import Cost
from llmexp.sweep.levels import levels

SHARED = ("hardware=cpu", "tracking=none", "parallelism.dp=1", "measure=smoke", "engine=torch", "data=synthetic")
TRAINED = "{task:pretrain,model:tiny,task.save_model:true,sweep.run_name:trained}"
TUNED = "{task:finetune,model:'@trained',task.save_model:true,sweep.run_name:tuned}"
AGAIN = "{task:finetune,model:'@tuned'}"


def words(*cells: str) -> tuple[str, ...]:
    return (f"hydra.sweeper.cells=[{','.join(cells)}]", *SHARED)


@dataclass
class Ranks:
    """Stands for a run's repeats: leaves samples and, where that is asked for, a model of these weights."""

    write_samples: Callable[..., None]
    endings: dict[str, Ending] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def __call__(self, plan: RunPlan, folder: RunFolder, turns: Any) -> Generator[None, None, Ending]:
        name, repeat = plan.config.model.name, folder.repeat(0)
        self.ran.append(name)
        if name in self.endings:
            return self.endings[name]
        self.write_samples(repeat, 0, [(1.0, 2.0, 256, 256)] * 3, range(1))
        counts = {"parameters": 1, "trainable_parameters": 1, "peak_rss_bytes": 1, "state_bytes": {}, "what_ran": {}}
        summary = TrainingSummary(rank=0, window_wall_s=2.0, time_to_first_step_s=1.0, **counts)
        (repeat / "rank.0.json").write_text(to_json(summary))
        if plan.config.task.save_model:
            (repeat / "model").mkdir()
            (repeat / "model" / "config.json").write_text("{}")
            save_file({"w": np.full(4, self.weights.get(name, 1.0))}, repeat / "model" / "model.safetensors")
        return SUCCESS
        yield


@pytest.fixture
def ranks(write_samples: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Ranks:
    fake = Ranks(write_samples)
    monkeypatch.setattr("llmexp.launch.run._run_repeats", fake)
    monkeypatch.setattr("llmexp.report.plots.can_draw", lambda: False)
    return fake


def of(model: str) -> RunFolder:
    return next(run for run in find_runs(Path("outputs")) if run.path.name.startswith(f"{model}_"))


def result(model: str) -> RunResult:
    found = of(model).result()
    assert found
    return found


def test_each_run_finds_the_model_of_the_one_before_it_and_notes_its_weights(llmexp, ranks: Ranks):
    code, out, err = llmexp(*words(AGAIN, TUNED, TRAINED))
    assert (code, ranks.ran) == (0, ["tiny", "trained", "tuned"]), out + err
    assert result("tiny").started_from == ""
    assert result("trained").started_from == Checkpoint.read(of("tiny").repeat(0) / "model").digest
    assert result("tuned").started_from == Checkpoint.read(of("trained").repeat(0) / "model").digest
    assert [each in out for each in ("tiny", "trained", "tuned")] == [True] * 3


def test_the_same_command_keeps_a_chain_that_is_whole(llmexp, ranks: Ranks):
    llmexp(*words(TRAINED, TUNED))
    _, out, _ = llmexp(*words(TRAINED, TUNED))
    assert ranks.ran == ["tiny", "trained"]
    assert out.count("success already") == 2


@pytest.mark.parametrize(("again", "ran"), [(1.0, ["tiny"]), (2.0, ["tiny", "trained"])])
def test_a_result_holds_while_the_weights_that_it_started_from_are_the_same(llmexp, ranks: Ranks, again, ran):
    llmexp(*words(TRAINED, TUNED))
    of("tiny").result_path.unlink()
    ranks.ran, ranks.weights = [], {"tiny": again}
    code, out, _ = llmexp(*words(TRAINED, TUNED))
    assert (code, ranks.ran) == (0, ran)
    assert ("again, model=@trained has other weights now" in out) is (again != 1.0)


def test_a_model_that_is_gone_is_made_again_only_where_a_run_starts_from_it(llmexp, ranks: Ranks):
    llmexp(*words(TRAINED, TUNED))
    for name in ("tiny", "trained"):
        shutil.rmtree(of(name).repeat(0) / "model")
    ranks.ran = []
    _, out, _ = llmexp(*words(TRAINED, TUNED))
    assert ranks.ran == ["tiny"]
    assert "again, its repeat.0/model is gone, from which other runs start" in out


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.OOM])
def test_a_run_is_skipped_with_the_reason_where_the_one_before_it_left_no_model(llmexp, ranks: Ranks, status):
    ranks.endings = {"tiny": Ending(status, "no such luck")}
    code, out, err = llmexp(*words(TRAINED, TUNED, AGAIN))
    assert (code, ranks.ran) == (1 if status is RunStatus.FAILED else 0, ["tiny"]), out + err
    assert (result("trained").status, result("trained").skip) == (RunStatus.SKIPPED, SkipCode.SOURCE)
    assert result("trained").reason == f"model=@trained: {of('tiny').path} ended {status}: no such luck"
    assert result("tuned").reason.startswith(f"model=@tuned: {of('trained').path} ended skipped: model=@trained")

    ranks.ran, ranks.endings = [], {}
    code, out, _ = llmexp(*words(TRAINED, TUNED, AGAIN), *(("rerun=all",) if status is RunStatus.OOM else ()))
    assert (code, ranks.ran) == (0, ["tiny", "trained", "tuned"])


def test_a_skip_stays_while_its_reason_does(llmexp, ranks: Ranks):
    ranks.endings = {"tiny": Ending(RunStatus.OOM, "no such luck")}
    llmexp(*words(TRAINED, TUNED))
    ended_at = result("trained").ended_at
    llmexp(*words(TRAINED, TUNED))
    assert (ranks.ran, result("trained").ended_at) == (["tiny"], ended_at)


def test_runs_that_take_turns_come_after_the_run_that_they_start_from(llmexp, ranks: Ranks):
    turns = "measure.order:interleaved"
    pair = [f"{{task:finetune,model:'@trained',seed:{seed},{turns}}}" for seed in (1, 2)]
    code, out, err = llmexp(*words(*pair, TRAINED))
    assert (code, ranks.ran) == (0, ["tiny", "trained", "trained"]), out + err


def planned(*cells: str) -> list[RunPlan]:
    return [job.plan for job in jobs_of(run_parser().parse_intermixed_args(list(words(*cells))))]


OTHER = "{task:pretrain,model:tiny,seed:5}"


def test_a_level_has_the_runs_whose_models_are_there_by_then():
    plans = planned(AGAIN, OTHER, TUNED, TRAINED)
    assert [[plan.config.model.name for plan in level] for level in levels(plans)] == [
        ["tiny", "tiny"],
        ["trained"],
        ["tuned"],
    ]
    assert levels(planned(OTHER)) == [planned(OTHER)]


def test_a_budget_leaves_out_what_starts_from_a_run_that_it_leaves_out():
    plans = planned(TRAINED, TUNED, AGAIN, OTHER)
    hours = (9.0, 1.0, 1.0, 2.0)
    costs = [Cost(plan, 3600 * each, "same") for plan, each in zip(plans, hours, strict=True)]
    assert within_budget(costs, BudgetConfig(device_hours=5.0, when_over="trim")) == [False, False, False, True]
    assert within_budget(costs, BudgetConfig(device_hours=13.0)) == [True] * 4


def test_a_launcher_of_another_package_gets_one_level_after_the_other():
    jobs = jobs_of(run_parser().parse_intermixed_args(list(words(TUNED, OTHER, TRAINED))))

    class Launcher:
        def __init__(self) -> None:
            self.launched: list[list[str]] = []

        def launch(self, overrides: Any, initial_job_idx: int) -> list[JobReturn]:
            self.launched.append([plan.config.model.name for plan in task.plans])
            return [JobReturn(status=JobStatus.COMPLETED) for _ in overrides]

    task, launcher = PlannedTask(), Launcher()
    runs = RunsByLauncher(launcher, task, {job.plan.id: job.overrides for job in jobs})
    assert runs.run([job.plan for job in jobs]) == [True] * 3
    assert launcher.launched == [["tiny", "tiny"], ["trained"]]
