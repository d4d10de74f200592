"""The folder by which a checkpoint is served: the same files, without what ends or varies outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import write_with_tokenizer

from llmexp.launchers.serving.weights.checkpoint_folder import ensure_checkpoint_folder
from llmexp.schema import HfModel
from llmexp.serving.plan.served_model import CheckpointModel, served_model, weight_parameters


@pytest.fixture
def model(tmp_path: Path) -> CheckpointModel:
    found = served_model(model_at(write_with_tokenizer(tmp_path / "mine")))
    assert isinstance(found, CheckpointModel)
    return found


def model_at(folder: Path) -> HfModel:
    return HfModel(name="mine", architecture="hf", path=str(folder), weights="pretrained")


def test_its_sizes_are_those_of_its_configuration_and_weights(model: CheckpointModel) -> None:
    sizes = (model.vocab_size, model.num_layers, model.num_kv_heads, model.head_dim, model.max_positions)
    assert sizes == (600, 2, 2, 32, 256)
    assert weight_parameters(model) > 2 * 600 * 64


def test_nothing_ends_or_varies_an_output_and_the_checkpoint_stays_as_it_is(
    model: CheckpointModel, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in model.folder.iterdir()}
    folder = ensure_checkpoint_folder(model, tmp_path / "cache")
    assert {path.name for path in folder.iterdir()} == before.keys()
    assert json.loads((folder / "generation_config.json").read_text()) == {"do_sample": False}
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] is None
    assert (folder / "model.safetensors").read_bytes() == before["model.safetensors"]
    assert {path.name: path.read_bytes() for path in model.folder.iterdir()} == before
    assert ensure_checkpoint_folder(model, tmp_path / "cache") == folder


def test_a_checkpoint_that_was_moved_is_linked_anew(model: CheckpointModel, tmp_path: Path) -> None:
    folder = ensure_checkpoint_folder(model, tmp_path / "cache")
    moved = served_model(model_at(model.folder.rename(tmp_path / "elsewhere")))
    assert isinstance(moved, CheckpointModel)
    assert ensure_checkpoint_folder(moved, tmp_path / "cache") == folder
    assert (folder / "tokenizer.json").resolve() == tmp_path / "elsewhere" / "tokenizer.json"


def test_other_contents_are_another_folder(model: CheckpointModel, tmp_path: Path) -> None:
    (model.folder / "tokenizer_config.json").write_text("{}")
    other = served_model(model_at(model.folder))
    assert isinstance(other, CheckpointModel)
    assert other.digest != model.digest
