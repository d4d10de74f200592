"""Whole runs of the worker's `work` in this process, by methods that need no other environment."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_llama import SIZES, MakePlan
from transformers import AutoModelForCausalLM

from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.errors import ConfigError
from llmexp.launchers.compress import methods, worker
from llmexp.launchers.compress.reloading import ReloadError
from llmexp.launchers.rank.frame import Rank
from llmexp.record.samples import read_samples

pytestmark = pytest.mark.long


@pytest.fixture
def compressed(compress_plan: MakePlan, tmp_path: Path) -> Any:
    def run(method: str, **keys: Any) -> tuple[CompressionSummary, list[DocumentSample]]:
        folder = tmp_path / f"repeat.{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        rank = Rank(0, 0, 1, folder)
        summary = worker.work(compress_plan(method, **keys), rank)
        return summary, read_samples(rank.samples_path, DocumentSample)

    return run


def _nll(samples: list[DocumentSample]) -> float:
    return sum(sample.nll for sample in samples) / sum(sample.tokens for sample in samples)


def _kl(samples: list[DocumentSample]) -> float:
    return sum(sample.kl for sample in samples) / sum(sample.tokens for sample in samples)


def test_a_run_says_what_came_out(compressed: Any, trained_llama: Path) -> None:
    summary, samples = compressed("magnitude")
    assert [sample.index for sample in samples] == list(range(8))
    assert summary.nll_saved == pytest.approx(_nll(samples), abs=1e-5)
    assert summary.sparsity == pytest.approx(0.5, abs=1e-3)
    original = AutoModelForCausalLM.from_pretrained(trained_llama)
    assert summary.parameters == summary.original_parameters == original.num_parameters()
    head_and_embeddings = 2 * SIZES["vocab_size"] * SIZES["hidden_size"]
    norms = (2 * SIZES["num_hidden_layers"] + 1) * SIZES["hidden_size"]
    assert summary.compressed_parameters == summary.parameters - head_and_embeddings - norms
    assert summary.weight_bits == 32
    assert summary.layers_bytes == 4 * summary.compressed_parameters
    assert summary.file_bytes == summary.original_file_bytes == (trained_llama / "model.safetensors").stat().st_size
    assert summary.calibration_tokens == 64 * 64
    assert 0 <= summary.overlap < 0.1
    assert summary.what_ran["format"] == "dense"


def test_the_original_is_judged_by_the_same_tokens(compressed: Any, compress_plan: MakePlan) -> None:
    """The nats of the original are those that transformers' own loss says."""
    _, samples = compressed("magnitude", sparsity=0.01)
    plan = compress_plan("magnitude")
    text = worker._text(plan.config)
    original = AutoModelForCausalLM.from_pretrained(plan.config.model.path)
    with torch.no_grad():
        nats = [
            sum(
                float(original(input_ids=(tokens := torch.tensor([part])), labels=tokens).loss) * (len(part) - 1)
                for part in document
            )
            for document in text.held_out
        ]
    assert [sample.nll_original for sample in samples] == pytest.approx(nats, rel=1e-4)
    assert all(sample.agreed <= sample.tokens for sample in samples)
    assert sum(sample.agreed for sample in samples) > 0.95 * sum(sample.tokens for sample in samples)
    assert 0 <= _kl(samples) < 1e-3


def test_two_of_four_costs_more_than_half_anywhere(compressed: Any) -> None:
    (_, anywhere), (summary, of_four) = compressed("magnitude"), compressed("magnitude", pattern="2:4")
    assert _kl(of_four) > 1.2 * _kl(anywhere)
    assert summary.sparsity == pytest.approx(0.5, abs=1e-3)


def _damage(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def _scale(tensors: dict[str, torch.Tensor]) -> None:
    tensors["model.layers.1.mlp.down_proj.weight"] *= 1.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_scale, r"nats a token before it was saved, and [\d.]+ after it was loaded; 0.0001 is allowed"),
        (
            lambda tensors: tensors.pop("model.layers.1.mlp.down_proj.weight"),
            "has missing keys, such as model.layers.1",
        ),
        (lambda tensors: tensors.update(other=torch.zeros(2)), "has unexpected keys, such as other"),
        (lambda tensors: tensors.update({"model.norm.weight": torch.ones(3)}), "cannot be loaded"),
    ],
)
def test_a_damaged_folder_fails_the_run(
    change: Any, said: str, compressed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = methods.make

    def make_and_damage(*arguments: Any) -> Any:
        made = make(*arguments)
        _damage(made.folder, change)
        return made

    monkeypatch.setattr(worker, "make", make_and_damage)
    with pytest.raises(ReloadError, match=said):
        compressed("magnitude")


def test_an_earlier_starts_folder_is_replaced(compress_plan: MakePlan, tmp_path: Path) -> None:
    rank = Rank(0, 0, 1, tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model-00002.safetensors").write_bytes(b"old")
    worker.work(compress_plan("magnitude"), rank)
    assert not (tmp_path / "model" / "model-00002.safetensors").exists()


def test_the_tokenizer_goes_with_the_model(compressed: Any, trained_llama: Path, tmp_path: Path) -> None:
    source = shutil.copytree(trained_llama, tmp_path / "with_tokenizer")
    (source / "tokenizer_config.json").write_text("{}")
    compressed("magnitude", model=source)
    assert len(list(tmp_path.glob("repeat.*/model/tokenizer_config.json"))) == 1


@pytest.mark.parametrize(
    ("method", "keys", "said"),
    [
        ("heads", {"share": 0.1}, "compress.share=0.1 of 2 is 0"),
        ("layers", {"share": 0.9}, "compress.share=0.9 of 4 is 4"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(method: str, keys: dict[str, Any], said: str, compressed: Any) -> None:
    with pytest.raises(ConfigError) as found:
        compressed(method, **keys)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_random_weights_are_refused(compress_plan: MakePlan, tmp_path: Path) -> None:
    plan = compress_plan("magnitude")
    random = plan.model_copy(
        update={
            "config": plan.config.model_copy(
                update={"model": plan.config.model.model_copy(update={"weights": "random"})}
            )
        }
    )
    with pytest.raises(ConfigError, match=r"set model\.weights=pretrained"):
        worker.work(random, Rank(0, 0, 1, tmp_path))
