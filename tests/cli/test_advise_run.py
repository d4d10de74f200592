"""`llmexp advise --run` measures what predictions cannot tell apart, and ranks again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.advice.goal import Goal
from llmexp.advice.option import Option
from llmexp.advice.ranking import ranked
from llmexp.cli.deciding import in_turns, sweep_words
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.result import Metric, RunResult, RunStatus
from llmexp.sweep.cost import Cost
from tests.planning import make_plan

CARD = ("model=1b", "hardware=h100", "hardware.devices_per_node=1", "tracking=none", "precision=bf16_mixed")
# Three useful options: two methods, and one with smaller moments.
OPEN = (*CARD, "method=F,F+R", "batch.micro=4", "engine=torch", "memory.recompute_layers=null")
# Measured over predicted speed by method.
SHARES = {"F": 0.4, "F+R": 1.0}


@pytest.fixture
def measured(runner, result_of: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch):
    """Let every run reach its method's share of the uncalibrated prediction, as if on that machine."""

    def result(plan: Any, status: str, **fields: Any) -> RunResult:
        rate = (plan.predicted.uncalibrated or plan.predicted.rate) * SHARES.get(plan.method, 1.0)
        gpus = {"driver_version": "1", "devices": [{"name": "unknown"}]}
        known = {"metrics": {"tokens_per_s": Metric(mean=rate)}, "environment": {"gpus": gpus}}
        known |= {"started_at": "2026-01-02T03:04:00+00:00", "ended_at": "2026-01-02T03:04:05+00:00"}
        return result_of(plan, status, **known | fields)

    def run(plan: Any, folder: RunFolder, wanted: Callable[[], bool]) -> RunResult:
        ended = runner(plan, folder, wanted)
        folder.repeat(0).mkdir()
        (folder.repeat(0) / "rank.0.json").write_text("{}")
        return ended

    runner.result_of = result
    monkeypatch.setattr("llmexp.launch.run.run_one", run)
    monkeypatch.setattr("llmexp.cli.deciding.other_hardware", lambda plan, node: None)
    return runner


def best(out: str) -> str:
    return next(line for line in out.splitlines() if line.startswith("best by "))


def test_the_deciding_runs_are_named_with_their_command_and_cost(llmexp) -> None:
    code, out, _ = llmexp("advise", *OPEN, "--plain", "goal=time", "--for", "tokens=1e9", "--global-batch", "8")
    assert code == 0
    said, command, cost = out.splitlines()[-3:]
    assert re.fullmatch(r"predictions cannot tell the first \d+ apart; 2 runs decide between the most promising:", said)
    assert command == f"  llmexp advise {' '.join(OPEN)} goal=time --for tokens=1e9 --global-batch 8 --plain --run 2"
    assert cost.startswith("expected cost: 2 of 2 runs: ")


def test_measured_options_are_ranked_again_and_what_changed_is_told(llmexp, measured, here: Path) -> None:
    before = best(llmexp("advise", *OPEN)[1])
    code, out, _ = llmexp("advise", *OPEN, "--run", "2")
    assert code == 0
    assert len(measured.ran) == len(find_runs(here / "outputs")) == 2
    assert re.search(r"measured [\d,]+ tokens/s; predicted were [\d,]+, [\d,]+ to [\d,]+", out)
    assert f"another one is best now: before it was {before.partition(': llmexp ')[2]}" in out
    assert best(out) != before
    # The other one changes the mathematics, and is slower than what does not.
    assert len([line for line in out.splitlines() if "  measured  " in line]) == 1
    # What was measured counts from now on, and its answers are kept.
    assert best(llmexp("advise", *OPEN)[1]) == best(out)


def test_the_next_ones_are_others(llmexp, measured, here: Path) -> None:
    llmexp("advise", *OPEN, "--run", "1")
    llmexp("advise", *OPEN, "--run", "1")
    assert len(measured.ran) == len(find_runs(here / "outputs")) == 2


def test_of_many_the_better_half_goes_on_with_more_steps(llmexp, measured, here: Path) -> None:
    code, out, _ = llmexp("advise", *CARD, "method=F,F+R", "batch.micro=4", "--run", "6")
    assert code == 0
    commands = [line for line in out.splitlines() if line.startswith("llmexp model=")]
    assert len(commands) == 2
    assert commands[0].endswith("measure.repeats=1 measure.warmup_steps=3 measure.steps=13")
    assert len(measured.ran) == 6 + 4
    told = [line for line in out.splitlines() if "; predicted were " in line]
    assert len(told) == 6
    assert all(" tokens/s;" in line for line in told)


def test_repeats_take_turns() -> None:
    def words(*typed: str) -> list[str]:
        cost = Cost(make_plan("model=13b", "hardware=a800", "method=F+Z3", *typed), None, "predicted")
        return in_turns(ranked([Option(cost)], Goal("tokens_per_s")), typed)

    assert words("measure.repeats=3") == ["measure.order=interleaved"]
    assert words("measure.repeats=1") == words("measure.repeats=3", "measure.order=run_by_run") == []


def test_a_run_that_is_out_of_memory_is_no_choice(llmexp, measured, here: Path) -> None:
    measured.largest_micro = 0
    code, out, _ = llmexp("advise", *OPEN, "--run", "1")
    assert code == 0
    assert "its run gave no speed; predicted were" in out
    assert "another one is best now" in out
    assert best(llmexp("advise", *OPEN)[1]) == best(out)


def test_an_interrupt_leaves_what_was_measured(llmexp, measured, here: Path) -> None:
    measured.endings = {"F+R": KeyboardInterrupt()}
    code = llmexp("advise", *OPEN, "--run", "20")[0]
    assert code == 130
    done = len(measured.ran)
    measured.endings = {}
    assert done >= 1
    assert llmexp("advise", *OPEN, "--run", "1")[0] == 0


def test_a_budget_is_kept(llmexp, measured) -> None:
    code, _, err = llmexp("advise", *OPEN, "budget.device_hours=1e-9", "sweep.pilot=false", "--run", "2")
    assert code == 2
    assert "budget.device_hours=1e-09: the sweep is expected to take" in err
    assert measured.ran == []


def test_another_machine_is_refused_before_anything_starts(llmexp, runner) -> None:
    code, _, err = llmexp("advise", *OPEN, "--run", "2")
    assert code == 2
    assert "--run: hardware=h100 does not match this node" in err
    assert "hydra/launcher=slurm" in err
    assert runner.ran == []


def test_none_is_no_number_of_runs(llmexp) -> None:
    code, _, err = llmexp("advise", *OPEN, "--run", "0")
    assert (code, err.strip()) == (2, "llmexp: --run 0: must be 1 or more")


def test_where_nothing_is_undecided_nothing_runs(llmexp, measured) -> None:
    _, out, _ = llmexp("advise", *OPEN, "goal=fits", "--run", "2")
    assert "nothing to measure: what is known already tells the best one from the others" in out
    assert measured.ran == []


def test_the_sweep_has_a_cell_an_option_and_what_was_typed() -> None:
    typed = ["model=7b", "hardware=a800,h100", "+method=F", "budget.usd=3", "~x"]
    options = [
        ["hydra.searchpath=[file:///a]", "model=7b", "hardware=a800", "method=F", "batch.micro=2"],
        ["model=7b", "hardware=h100", "method=F"],
    ]
    cells = "hydra.sweeper.cells=[{hardware:a800,method:F,batch.micro:2},{hardware:h100,method:F}]"
    assert sweep_words(typed, options) == ["model=7b", "budget.usd=3", "~x", cells]


@pytest.mark.slow
@pytest.mark.ranks
def test_two_real_runs_decide_on_this_processor(llmexp, here: Path) -> None:
    processor = ("hardware=cpu", "measure.threads_per_rank=1", "tracking=none")
    families = ("micro.ranks=1", "micro=gemm,operators,attention,optimizer,copies", "measure.samples=5")
    assert llmexp("task=micro", *processor, *families)[0] == 0
    choice = ("model=tiny", "data.seq_len=32", "method=Naive,F", "batch.micro=1", "engine=torch", "measure=smoke")
    code, out, err = llmexp("advise", *processor, "hardware.devices_per_node=1", *choice, "--run", "2")
    assert code == 0, err
    results = [run.result() for run in find_runs(here / "outputs") if "tiny" in run.path.name]
    assert [result.status for result in results if result] == [RunStatus.SUCCESS] * 2
    rates = sorted(result.metrics["tokens_per_s"].mean for result in results if result)
    assert best(out).partition("method=")[2].split()[0] in {"Naive", "F"}
    assert out.count("  measured  ") == 2
    assert rates[0] > 0
