"""A server that takes everything and finds nothing of it, or lists runs without end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llmexp.errors import RecordError
from llmexp.record.mlflow import experiment, parents, sync, tracker
from llmexp.record.mlflow.experiment import Experiment


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Experiment, "is_ours_alone", property(lambda self: False))


def test_runs_that_it_does_not_find_again_are_not_written_for_ever(make_run, tracking, recorded, monkeypatch):
    monkeypatch.setattr(tracker, "MOST_LOOKS", 3)
    monkeypatch.setattr(Experiment, "search", lambda self, tags: [])
    with pytest.raises(
        RecordError, match=r"the server does not keep what it is given: run .* is not one run after 3 looks"
    ):
        sync([make_run()], tracking)
    monkeypatch.undo()
    assert len(recorded()) == 3


@pytest.mark.slow
def test_a_parent_that_is_always_gone_is_given_up(make_run, tracking, monkeypatch):
    monkeypatch.setattr(parents, "MOST_LOOKS", 3)
    monkeypatch.setattr(Experiment, "unless_removed", lambda self, run, work: False)
    with pytest.raises(RecordError, match=r"the parent of sweep main is gone after 3 looks|is not one run after"):
        sync([make_run()], tracking)


def test_a_list_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(experiment, "MOST_PAGES", 3)

    class Page(list):
        token = "more"

    endless = SimpleNamespace(client=SimpleNamespace(search_runs=lambda *words, **named: Page()), id="1")
    with pytest.raises(RecordError, match="the server's list of runs has no end: 3 pages"):
        Experiment.search(endless, {})
