from __future__ import annotations

from pathlib import Path

from planning import make_plan

from llmexp.cli.reproduce import beyond
from llmexp.launch.detect import Detected
from llmexp.record.folder import RunFolder
from llmexp.record.result import RunStatus

WORDS = ("method=R+F", "hardware=cpu", "tracking=none", "measure.steps=7")


def test_a_skipped_run_is_planned_again_into_its_own_sweep(llmexp, runner, here: Path):
    runner.endings["F+R"] = RunStatus.SKIPPED
    assert llmexp(*WORDS)[0] == 0
    (first,) = here.glob("outputs/main/*/")
    plan = first / "plan.json"
    # Of a tracker that only the other machine had.
    plan.write_text(plan.read_text().replace('"also": []', '"also": ["theirs"]'))
    code, out, _ = llmexp("reproduce", str(first))
    assert code == 0
    assert out.splitlines()[-1] == "reproduced: it ended skipped again"
    (again,) = map(RunFolder, here.glob("outputs/reproduced/*/"))
    assert again.result().sweep == "reproduced"
    # One process, as measure=quick takes, could not tell how far the next is from it.
    assert again.result().command == f"{RunFolder(first).result().command} measure.repeats=3"
    assert runner.ran == ["tiny F+R"] * 2


def test_a_servers_variables_and_an_interpreter_that_is_not_this_machines_are_shown(here: Path, monkeypatch):
    (here / "python").touch()
    words = ("task=serve", "engine=vllm", "model=7b", "hardware=rtx4090", f"engine.python={here}/python")
    plan, earlier = make_plan(*words), RunFolder(here / "outputs" / "main" / "theirs")
    variables = 'hardware.serving_environment={"NCCL_P2P_DISABLE": "1"}'
    assert beyond(plan, earlier) == [variables, f'engine.python="{here}/python"']
    monkeypatch.setenv("LLMEXP_VLLM_PYTHON", f"{here}/python")
    assert beyond(plan, earlier) == [variables]


def test_another_ending_is_not_reproduced(llmexp, runner, here: Path):
    runner.endings["F+R"] = RunStatus.OOM
    llmexp(*WORDS)
    runner.endings["F+R"] = RunStatus.SKIPPED
    code, out, _ = llmexp("reproduce", *map(str, here.glob("outputs/main/*/")))
    assert code == 1
    assert "NOT reproduced" in out


def test_a_run_without_a_result_is_named(llmexp, runner, here: Path):
    runner.endings["F+R"] = RunStatus.OOM
    llmexp(*WORDS)
    (first,) = here.glob("outputs/main/*/")
    (first / "result.json").unlink()
    code, _, err = llmexp("reproduce", str(first))
    assert code == 1
    assert err == f"llmexp: {first} has no result to reproduce: it is planned\n"


def test_a_plan_of_another_version_is_named(llmexp, runner, here: Path):
    runner.endings["F+R"] = RunStatus.OOM
    llmexp(*WORDS)
    (first,) = here.glob("outputs/main/*/")
    plan = first / "plan.json"
    plan.write_text(plan.read_text().replace('"dims"', '"degrees"'))
    code, _, err = llmexp("reproduce", str(first))
    assert code == 1
    assert "plan.json is not a plan of this llmexp" in err
    assert "python -m llmexp method=R+F" in err


def test_hardware_that_is_not_here_is_one_line_and_nothing_is_measured(llmexp, runner, here: Path, monkeypatch):
    monkeypatch.setattr("llmexp.cli.reproduce.detect", lambda: Detected("cpu", "cpu", "", 2, None))
    assert llmexp("method=F", "hardware=h200", "tracking=none")[0] == 0
    code, out, err = llmexp("reproduce", *map(str, here.glob("outputs/main/*/")))
    assert (code, err) == (1, "")
    assert (
        out
        == "cannot tell: hardware=h200 does not match this node: it needs 8 x NVIDIA H200, and no GPU is visible here\n"
    )
    assert runner.ran == ["tiny F"]
    assert not (here / "outputs" / "reproduced").exists()
