"""The command that repeats a run is what a person types, and repeats it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmexp.cli.app import hydra_app
from llmexp.cli.arguments import run_parser
from llmexp.cli.typed import typed
from llmexp.cli.words import jobs_of
from llmexp.training.plan.training_plan import TrainingPlan

TOKENIZER = r"data.tokenizer=$\{model.path\}"
SHAPE = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "model_type": "llama",
}


@pytest.fixture
def checkpoints(here: Path) -> None:
    """Checkpoints by their files only: ./mine and './it's mine' have a tokenizer, ./bare has none.

    ./mine.jsonl has one record.
    """
    header = json.dumps({"a": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}).encode()
    for name in ("mine", "it's mine", "bare"):
        folder = here / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(SHAPE | {"architectures": ["LlamaForCausalLM"]}))
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))
        if name != "bare":
            (folder / "tokenizer.json").write_text("{}")
    (here / "mine.jsonl").write_text(json.dumps({"instruction": "a", "output": "b"}) + "\n")


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["model=hf", "model.path=./mine", TOKENIZER, "model.weights=pretrained", "seed=3"],
            ["model=./mine", "seed=3"],
        ),
        (["model=hf", "model.path='./it\\'s mine'", "model.weights=pretrained", TOKENIZER], ["model=./it's mine"]),
        (["model=hf", "model.path=./bare", "model.weights=pretrained"], ["model=./bare"]),
        (["model=hf", "model.path=org/a", "model.weights=random", TOKENIZER], ["model=org/a", "model.weights=random"]),
        (
            ["model=hf", "model.path=./mine", "model.weights=pretrained", "data.tokenizer=bytes"],
            ["model=./mine", "data.tokenizer=bytes"],
        ),
        (["data=instructions", "data.files=[./mine.jsonl]"], ["data=./mine.jsonl"]),
        (
            [
                "model=hf",
                "model.path=./mine",
                TOKENIZER,
                "model.weights=pretrained",
                "data=instructions",
                "data.files=[./mine.jsonl]",
            ],
            ["model=./mine", "data=./mine.jsonl"],
        ),
        (["model=7b", TOKENIZER], ["model=7b", "data.tokenizer=${model.path}"]),
        (
            ["model=hf", "model.path=./bare", "model.weights=pretrained", TOKENIZER],
            ["model=./bare", "data.tokenizer=${model.path}"],
        ),
    ],
)
def test_options_that_a_place_stands_for_are_said_by_the_place(words: list[str], expected: list[str]) -> None:
    with hydra_app() as hydra:
        assert typed(hydra.config_loader, words) == expected


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize(
    "words",
    [
        ["model=7b", "method=F+R", "seed=1"],
        # The place would bring its tokenizer along.
        ["model=hf", "model.path=./mine", "model.weights=pretrained"],
        # The place would bring the weights along.
        ["model=hf", "model.path=./bare"],
        # What would be an option's name, no word at all, or parted by its comma.
        ["model=hf", "model.path=mine", "model.weights=pretrained", "data.tokenizer=bytes"],
        ["model=hf", r"model.path='it\'s'", "model.weights=pretrained", "data.tokenizer=bytes"],
        ["model=hf", "model.path='./a,./b'", "model.weights=pretrained", "data.tokenizer=bytes"],
        ["data=instructions", "data.files=[./a.jsonl,./b.jsonl]"],
        ["data=instructions", "data.files=[./records*]"],
        # Inside quotes a backslash is a backslash.
        ["model=7b", r"data.tokenizer='$\{model.path\}'"],
    ],
)
def test_words_that_a_place_does_not_stand_for_stay(words: list[str]) -> None:
    with hydra_app() as hydra:
        assert typed(hydra.config_loader, words) == words


def planned(words: Sequence[str]) -> list[TrainingPlan]:
    return [job.plan for job in jobs_of(run_parser().parse_intermixed_args(list(words)))]


def as_bash_reads(command: str) -> list[str]:
    """The words after `python -m llmexp`."""
    script = f'python() {{ shift 2; printf "%s\\0" "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize(
    ("words", "commands"),
    [
        (
            ["model=./mine", "hardware=cpu", "method=Naive,Z2"],
            ["model=./mine hardware=cpu method=Naive", "model=./mine hardware=cpu method=Z2"],
        ),
        (["model=./it's mine", "hardware=cpu"], ["""'model=./it'"'"'s mine' hardware=cpu"""]),
        (
            ["hardware=cpu", "task=finetune", "method=L", "data=mine.jsonl"],
            ["hardware=cpu task=finetune method=L data=mine.jsonl"],
        ),
    ],
)
def test_a_command_pasted_into_bash_repeats_its_run(words: list[str], commands: list[str]) -> None:
    plans = planned(words)
    assert [plan.rerun_command for plan in plans] == [f"python -m llmexp {command}" for command in commands]
    for plan in plans:
        (again,) = planned(as_bash_reads(plan.rerun_command))
        assert (again.id, again.rerun_command) == (plan.id, plan.rerun_command)


@pytest.mark.usefixtures("checkpoints", "runner")
def test_the_job_itself_records_the_same_command(llmexp, here: Path) -> None:
    assert llmexp("model=./mine", "hardware=cpu", "tracking=none")[0] == 0
    (plan,) = here.glob("outputs/main/*/plan.json")
    assert TrainingPlan.read(plan).rerun_command == "python -m llmexp model=./mine hardware=cpu tracking=none"
