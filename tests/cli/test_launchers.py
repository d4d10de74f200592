from __future__ import annotations

import pytest

from llmexp.tasks import resolve

QUIET = ("tracking=none", "model=tiny", "hardware=cpu")


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that were planned, in order, each as often as it was."""
    found: list[str] = []
    plan = resolve.resolve

    def note(config, words):
        found.append(config.method)
        return plan(config, words)

    monkeypatch.setattr("llmexp.cli.jobs.resolve", note)
    return found


@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_what_was_planned_is_measured_whoever_launches_it(launcher, llmexp, runner, planned):
    code, _, err = llmexp("method=Naive,R", f"hydra/launcher={launcher}", *QUIET)
    assert (code, err) == (0, "")
    assert planned == ["Naive", "R"]
    assert runner.ran == ["tiny Naive", "tiny R"]


@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_an_error_of_one_run_is_shown_and_stops_no_other(launcher, llmexp, runner):
    runner.endings = {"Naive": ZeroDivisionError("a defect")}
    code, _, err = llmexp("method=Naive,R", f"hydra/launcher={launcher}", *QUIET)
    assert code == 1
    assert "ZeroDivisionError: a defect" in err
    assert runner.ran == ["tiny Naive", "tiny R"]
