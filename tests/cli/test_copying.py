"""Trackers beside MLflow, from the command's words to their folders."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.trackers import also

WORDS = ("model=tiny", "hardware=cpu", f"tracking.timeout_s={HANG_S:g}")
BOTH = "tracking.also=tensorboard,wandb"


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(also, "_gave_up", set())
    monkeypatch.delenv("WANDB_MODE", raising=False)


def copies(tracker: str) -> list[str]:
    return sorted(path.name.split("_")[1] for path in Path("outputs", tracker, "main").iterdir())


def test_runs_reach_all_trackers_that_are_named_and_sync_finds_nothing_to_do(llmexp, runner, here):
    code, _, err = llmexp("method=Naive,R", "tracking=none", BOTH, *WORDS)
    assert (code, err) == (0, "")
    assert copies("tensorboard") == copies("wandb") == ["Naive", "R"]
    assert not (here / "outputs" / "mlflow.db").exists()
    said = "tensorboard: 0 recorded, 2 unchanged\nwandb: 0 recorded, 2 unchanged\n"
    assert llmexp("sync", "--to", "tensorboard,wandb")[:2] == (0, said)


def test_sync_goes_to_the_planned_trackers_or_to_those_that_are_named(llmexp, runner, monkeypatch):
    asked = []
    monkeypatch.setattr("llmexp.cli.commands.sync.copy_runs", lambda runs, chosen: not asked.append("mlflow"))
    monkeypatch.setattr("llmexp.cli.copying._copied", lambda runs, *names: not asked.append((len(runs), *names)))
    monkeypatch.setattr("llmexp.record.trackers.record_also", lambda folders, tracking: None)
    assert llmexp("method=F", "tracking=none", BOTH, *WORDS)[0] == 0
    assert llmexp("method=R", "tracking=none", "tracking.also=tensorboard", *WORDS)[0] == 0
    assert llmexp("sync")[0] == 0
    assert asked == [(2, "tensorboard", "llmexp"), (1, "wandb", "llmexp"), "mlflow"]
    asked.clear()
    assert llmexp("sync", "--to", "wandb", "--experiment", "mine")[0] == 0
    assert asked == [(2, "wandb", "mine")]
    asked.clear()
    assert llmexp("sync", "--to", "mlflow")[0] == 0
    assert asked == ["mlflow"]


def test_a_run_that_was_planned_without_a_tracker_reaches_it_by_sync(llmexp, runner):
    llmexp("method=F", "tracking=none", *WORDS)
    assert llmexp("sync", "--to", "tensorboard")[:2] == (0, "tensorboard: 1 recorded, 0 unchanged\n")
    assert copies("tensorboard") == ["F"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "tracking.also=comet"), "unknown tracker 'comet': choices are tensorboard, wandb"),
        (("tracking.also=[tensorboard,mlflow]",), "unknown tracker 'mlflow': write tracking=mlflow; choices are"),
        (("tracking.also=3",), "tracking.also.0=3: must be a text"),
        (("tracking=wandb",), "tracking.also=wandb"),
        (("tracking=tensorboard",), "tracking.also=tensorboard"),
        (("sync", "--to", "tensorbord"), "unknown tracker 'tensorbord': did you mean tensorboard?"),
    ],
)
def test_a_tracker_that_there_is_not_is_one_line(llmexp, runner, words, said):
    code, out, err = llmexp(*words)
    assert (code, out, err.count("\n"), runner.ran) == (2, "", 1, [])
    assert said in err


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_a_library_that_is_missing_is_one_line_before_anything_starts(llmexp, runner, here, monkeypatch, tracker):
    there = importlib.util.find_spec
    absent = lambda name: None if name == tracker else there(name)  # noqa: E731
    monkeypatch.setattr("llmexp.record.trackers.run_tracker.find_spec", absent)
    code, out, err = llmexp("method=F", "tracking=none", f"tracking.also={tracker}", *WORDS)
    assert (code, out, err.count("\n"), runner.ran, list(here.iterdir())) == (2, "", 1, [], [])
    assert f"tracking.also={tracker}: {tracker} is not installed: pip install '.[{tracker}]'" in err
    assert llmexp("plan", "method=F", f"tracking.also={tracker}", *WORDS)[0] == 0


def test_a_tracker_that_fails_is_a_line_of_sync_and_its_exit_code(llmexp, runner, here):
    llmexp("method=F", "tracking=none", *WORDS)
    (here / "outputs" / "tensorboard").touch()
    code, out, err = llmexp("sync", "--to", "tensorboard")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("llmexp: not copied to tensorboard: ")
