from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.cli.show import plan_text
from llmexp.errors import ConfigError
from llmexp.inputs.checkpoint import INDEX, ONE_FILE, Checkpoint
from llmexp.sweep.cost import Cost
from llmexp.training.plan.training_plan import TrainingPlan

Planning = Callable[..., TrainingPlan]

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def write_shard(path: Path, names: list[str], value: int = 1) -> None:
    """Each tensor is 4 x 8 numbers of 4 bytes."""
    header = {
        name: {"dtype": "F32", "shape": [4, 8], "data_offsets": [128 * i, 128 * (i + 1)]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes([value]) * 128 * len(names))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of two shards, by its files only."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
    }
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4, "model_type": "llama"}))
    places = {"a": SHARDS[0], "b": SHARDS[0], "c": SHARDS[1]}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    write_shard(tmp_path / SHARDS[0], ["a", "b"])
    write_shard(tmp_path / SHARDS[1], ["c"])
    return tmp_path


def refused(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        Checkpoint.read(folder)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"model.path={folder}: ")
    return line.removeprefix(f"model.path={folder}: ")


def test_every_tensor_is_found_in_its_shard(folder: Path) -> None:
    tensors = Checkpoint.read(folder).tensors
    assert {name: stored.shard.name for name, stored in tensors.items()} == {
        "a": SHARDS[0],
        "b": SHARDS[0],
        "c": SHARDS[1],
    }
    assert tensors["b"].shape == (4, 8)
    assert tensors["b"].end - tensors["b"].begin == 128


def test_one_file_needs_no_index(folder: Path) -> None:
    (folder / INDEX).unlink()
    write_shard(folder / ONE_FILE, ["a"])
    assert list(Checkpoint.read(folder).tensors) == ["a"]


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / SHARDS[1]).unlink()
    assert refused(folder) == f"shard {SHARDS[1]} is missing, which {INDEX} names"


def test_a_truncated_shard_says_how_long_it_should_be(folder: Path) -> None:
    whole = (folder / SHARDS[0]).read_bytes()
    (folder / SHARDS[0]).write_bytes(whole[:-100])
    assert (
        refused(folder)
        == f"shard {SHARDS[0]} is truncated: it has {len(whole) - 100} bytes, and its header says {len(whole)}"
    )
    (folder / SHARDS[0]).write_bytes(whole + b"x")
    assert "longer than it should be" in refused(folder)


@pytest.mark.parametrize("size", [0, 5, 20])
def test_a_shard_cut_off_in_its_header_is_truncated_too(folder: Path, size: int) -> None:
    (folder / SHARDS[0]).write_bytes((folder / SHARDS[0]).read_bytes()[:size])
    assert refused(folder).startswith(f"shard {SHARDS[0]} is truncated: it has {size} bytes")


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / INDEX).unlink()
    assert refused(folder).startswith(f"it has neither {ONE_FILE} nor {INDEX}")
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert refused(folder).startswith(
        "its weights are pytorch_model.bin, and only safetensors are read: convert them with transformers"
    )


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (INDEX, "{", f"{INDEX} cannot be read"),
        (INDEX, '{"weight_map": {}}', f"{INDEX} names no tensors"),
        (
            INDEX,
            json.dumps({"weight_map": {"a": SHARDS[0], "d": SHARDS[0]}}),
            f"{INDEX} names d in {SHARDS[0]}, which has no such tensor",
        ),
        (
            SHARDS[0],
            "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n",
            f"{SHARDS[0]} is no safetensors file",
        ),
    ],
)
def test_other_content_is_refused(folder: Path, name: str, content: str, reason: str) -> None:
    (folder / name).write_text(content)
    assert refused(folder).startswith(reason)


def test_without_a_configuration_it_is_no_checkpoint(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "it has no config.json" in refused(folder)


def words(folder: Path) -> tuple[str, ...]:
    return ("model=hf", f"model.path={folder}", "model.weights=pretrained")


def test_other_values_of_the_same_shapes_are_another_run(plan: Planning, folder: Path) -> None:
    first = plan(*words(folder))
    assert plan(*words(folder)).id == first.id
    write_shard(folder / SHARDS[1], ["c"], value=2)
    assert plan(*words(folder)).id != first.id


def test_a_broken_checkpoint_stops_planning_and_only_where_it_is_read(plan: Planning, folder: Path) -> None:
    (folder / SHARDS[1]).unlink()
    with pytest.raises(ConfigError, match="is missing"):
        plan(*words(folder))
    assert plan(*words(folder), "model.weights=random").config.model.weights == "random"


def test_a_plan_says_which_weights_it_starts_from_and_what_it_leaves(plan: Planning, folder: Path) -> None:
    kept = plan(*words(folder), "task=finetune", "method=L", "task.save_model=true")
    text = plan_text(Cost(kept, None, "unknown"), verbose=True)
    assert f"  weights    the checkpoint {folder}\n  leaves     repeat.0/adapter, repeat.0/model\n" in text
    assert "leaves" not in plan_text(Cost(plan("task=finetune", "method=L"), None, "unknown"), verbose=True)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            ("model.weights=pretrained",),
            "model.weights=pretrained belongs to model=hf, and model=tiny is llama: "
            "set model=<folder or hub name> for a checkpoint",
        ),
        (("task.save_model=true", "engine=megatron"), "task.save_model=true: engine=megatron saves no weights"),
        (
            ("task.save_model=true", "engine=torch", "parallelism.dp=1", "parallelism.pp=2", "batch.accumulation=2"),
            "task.save_model=true: parallelism.pp=2 cuts the model",
        ),
        (
            ("task=finetune", "method=P", "task.save_model=true"),
            "task.save_model=true: P trains embeddings before the text",
        ),
    ],
)
def test_what_cannot_be_is_one_line(plan: Planning, overrides: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(*overrides)
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)


def test_random_weights_leave_the_ids_of_earlier_runs_as_they_were(plan: Planning) -> None:
    dumped: dict[str, Any] = plan().config.model_dump(exclude_defaults=True)
    assert "weights" not in dumped["model"]
    assert "save_model" not in dumped["task"]
