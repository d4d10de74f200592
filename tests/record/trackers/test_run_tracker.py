from __future__ import annotations

from pathlib import Path

import pytest

from llmexp.errors import ConfigError
from llmexp.record.trackers import check_trackers
from llmexp.record.trackers.content import read
from llmexp.record.trackers.run_tracker import RunTracker, TrackedFile, tracked_run
from llmexp.registry import get_tracker


class Odd(RunTracker):
    name, library, install = "odd", "odd_library", "llmexp-odd"

    def write(self, run, folder):
        raise NotImplementedError


def test_parameters_that_are_numbers_or_truth_values_are_so(make_run):
    run = tracked_run(read(make_run(memory={"activation_offload": True}, optimizer__lr=0.5)), "mine")
    assert (run.params["batch.micro"], run.params["optimizer.lr"], run.params["model"]) == (2, 0.5, "tiny")
    assert (run.params["memory.activation_offload"], run.project, run.task) == (True, "mine", "pretrain")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "[1]", "null", "01"])
def test_other_parameters_stay_texts(make_run, text):
    assert tracked_run(read(make_run(engine__options={"a": text})), "mine").params["engine.options.a"] == text


def test_final_values_stand_apart_from_those_over_steps(make_run):
    run = tracked_run(read(make_run(repeats=2)), "mine")
    assert (run.metrics["tokens_per_s"], run.metrics["tokens_per_s_low"]) == (7000.0, 6900.0)
    assert {point.name.partition("/")[0] for point in run.points} == {"repeat.0", "repeat.1", "system"}
    assert not run.metrics.keys() & {point.name for point in run.points}


def test_the_words_tell_a_run_from_others_of_its_method(make_run):
    run = tracked_run(read(make_run("F+R", batch__micro=4)), "mine")
    assert run.name == f"tiny F+R {run.words}"
    assert "batch.micro=4" in run.words


def test_only_texts_are_searched_for_secrets(tmp_path: Path):
    text, picture = tmp_path / "a.txt", tmp_path / "a.png"
    for path in (text, picture):
        path.write_bytes(b"https://me:hunter2hunter2@example.org \xff")
    assert TrackedFile("a.txt", text).content() == "https://***@example.org \ufffd".encode()
    assert TrackedFile("a.png", picture).content() == picture.read_bytes()


def test_a_library_that_is_missing_is_named_with_what_installs_it(tmp_path: Path, monkeypatch):
    (tmp_path / "odd_library").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    said = "tracking.also=odd: odd_library is not installed: llmexp-odd, or leave odd out"
    with pytest.raises(ConfigError, match=said):
        Odd().check()
    (tmp_path / "odd_library" / "__init__.py").touch()
    Odd().check()


def test_an_unknown_tracker_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown tracker 'comet': choices are tensorboard, wandb$"):
        get_tracker("comet")
    with pytest.raises(ConfigError, match=r"unknown tracker 'mlflow': write tracking=mlflow; "):
        check_trackers(["mlflow"])
