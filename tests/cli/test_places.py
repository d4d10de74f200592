"""model=./folder and data=./file in the place of an option's name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmexp.cli.app import hydra_app
from llmexp.cli.arguments import run_parser
from llmexp.cli.overrides import accept, as_typed
from llmexp.cli.words import jobs_of
from llmexp.errors import ConfigError


def accepted(*words: str) -> list[str]:
    with hydra_app() as hydra:
        return as_typed(accept(hydra.config_loader, list(words)))


def of(*paths: str) -> list[str]:
    return ["model=hf", f"model.path={','.join(paths)}", "model.weights=pretrained"]


TOKENIZER = "data.tokenizer=${model.path}"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("model=./mine", [*of("./mine"), TOKENIZER]),
        ("+model=/a/b", [*of("/a/b"), TOKENIZER]),
        ("model=meta-llama/Llama-2-7b-hf", [*of("meta-llama/Llama-2-7b-hf"), TOKENIZER]),
        ("model=./a,org/b", [*of("./a", "org/b"), TOKENIZER]),
        ("model=./it's mine", [*of("'./it\\'s mine'"), TOKENIZER]),
        ("model=~/mine", [*of(str(Path.home() / "mine")), TOKENIZER]),
        ("data=./mine.jsonl", ["data=instructions", "data.files=[./mine.jsonl]"]),
        ("data=mine.jsonl,/b/c.parquet", ["data=instructions", "data.files=[mine.jsonl],[/b/c.parquet]"]),
    ],
)
def test_a_place_stands_for_options(word: str, meant: list[str]) -> None:
    assert accepted(word) == meant


def test_the_configuration_of_a_folder_stands_for_the_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert accepted(f"model={tmp_path}/mine/config.json") == of(f"{tmp_path}/mine")


def test_options_stay_options() -> None:
    words = ["model=7b,13b", "data=text", "model.path=./a"]
    assert accepted(*words) == words


def test_what_is_typed_besides_wins_wherever_it_stands() -> None:
    assert accepted("model.weights=random", "model=./a", "data.tokenizer=bytes") == [
        "model.weights=random",
        "model=hf",
        "model.path=./a",
        "data.tokenizer=bytes",
    ]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("model=7b,./mine", "./mine is a path, not an option, and the two cannot be swept together"),
        ("data=./mine.txt", "data=text"),
    ],
)
def test_what_cannot_be_meant_is_one_line(word: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        accepted(word)


def plans(words: Sequence[str]) -> list[tuple[str, str, str, str]]:
    jobs = jobs_of(run_parser().parse_intermixed_args(list(words)))
    return [
        (job.plan.id, str(job.plan.config.model.path), job.plan.config.data.tokenizer, job.plan.rerun_command)
        for job in jobs
    ]


def test_the_command_that_repeats_a_run_gives_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["hardware=cpu", "model=org/a,org/b c", "model.weights=random", "method=Naive,Z2"]
    swept = plans(words)
    assert [(path, tokenizer) for _, path, tokenizer, _ in swept] == [
        (name, name) for name in ("org/a", "org/b c") for _ in range(2)
    ]
    for run in swept:
        assert plans(shlex.split(run[-1])[3:])[0][:3] == run[:3]


def test_random_tokens_do_without_the_tokenizer_that_comes_with_a_model(tmp_path: Path) -> None:
    """Where some run of a sweep has text, it is read with that tokenizer."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").touch()
    words = ["hardware=cpu", f"model={tmp_path}", "model.weights=random", "data=synthetic,text"]
    drawn, read = (job.plan for job in jobs_of(run_parser().parse_intermixed_args(words)))
    assert drawn.config.inputs == (str(tmp_path),)
    assert read.config.inputs == (str(tmp_path), str(tmp_path))
    (again,) = jobs_of(run_parser().parse_intermixed_args(shlex.split(drawn.rerun_command)[3:]))
    assert again.plan.id == drawn.id
