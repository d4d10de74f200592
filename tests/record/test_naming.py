from __future__ import annotations

import shlex

import pytest

from llmexp.record.naming import apart, distinguishing_overrides, name_of


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("", []),
        ("method=F model=tiny", []),
        ("+method=F engine=torch precision=fp32", ["engine=torch", "precision=fp32"]),
        (
            "experiment=first_run tracking=none tracking.uri=x sweep.name=mine budget.usd=3 rerun=all force=true "
            "node=1",
            [],
        ),
        ("hydra/launcher=slurm hydra.launcher.partition=gpu detach=true hydra.searchpath=[file:///my]", []),
        ("model=hf model.path=./mine 'data.files=[a b.jsonl]'", ["model.path=./mine", "data.files=[a b.jsonl]"]),
        ("nodes=2 methods=3", ["nodes=2", "methods=3"]),
    ],
)
def test_the_words_that_say_what_is_measured(overrides, words):
    assert distinguishing_overrides(shlex.split(overrides), ("model", "method")) == words


def test_a_name_is_model_method_and_words():
    assert name_of(("tiny", "F+R"), ["engine=torch"]) == "tiny F+R engine=torch"
    assert name_of(("tiny", "F+R"), []) == "tiny F+R"


def test_programs_are_told_by_their_files_and_the_options_that_differ():
    runs = [["engine=script", f"engine.options.command='/home/me/train.py --steps 50 --lr {rate}'"] for rate in (1, 2)]
    assert apart(runs) == ["train.py --lr 1", "train.py --lr 2"]


def test_runs_beside_each_other_are_told_by_what_not_all_have():
    assert apart([["a=1", "b=1"], ["b=1", "a=2"], ["b=1"]]) == ["a=1", "a=2", ""]
    assert apart([["a=1"]]) == [""]
    assert apart([]) == []
