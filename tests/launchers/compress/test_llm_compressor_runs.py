"""Models that llm-compressor compresses in its own environment, loaded here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_llama import MakePlan
from transformers import LlamaForCausalLM

from llmexp.cli.resolvers import server_python
from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.launchers.compress import worker
from llmexp.launchers.rank.frame import Rank
from llmexp.record.samples import read_samples

pytestmark = [pytest.mark.slow, pytest.mark.long]
PYTHON = server_python("compress")
Ran = tuple[CompressionSummary, float]


@pytest.fixture
def ran(compress_plan: MakePlan, tmp_path: Path) -> Callable[..., Ran]:
    """Run a method; return its summary, which says that the loaded model is the saved one, and KL a token."""
    if not PYTHON or not find_spec("compressed_tensors"):
        pytest.skip("no llm-compressor: make compress-venv, or set LLMEXP_COMPRESS_PYTHON")

    @cache
    def run(method: str, iters: int | None = None, **keys: Any) -> Ran:
        folder = tmp_path / f"repeat.{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        rank = Rank(0, 0, 1, folder)
        options = {"python": PYTHON, "modifier": {"iters": iters} if iters else {}}
        summary = worker.work(compress_plan(method, engine_config=options, **keys), rank)
        samples = read_samples(rank.samples_path, DocumentSample)
        return summary, sum(sample.kl for sample in samples) / sum(sample.tokens for sample in samples)

    return run


def test_gptq_is_nearer_to_the_original_than_rounding(ran: Callable[..., Ran]) -> None:
    (gptq, near), (rtn, far) = ran("gptq"), ran("rtn")
    assert 3 * near < far
    assert gptq.file_bytes == rtn.file_bytes < 0.5 * gptq.original_file_bytes
    assert gptq.weight_bits == rtn.weight_bits == 4.5
    assert gptq.parameters == gptq.original_parameters
    assert gptq.what_ran["format"] == "pack-quantized"
    assert gptq.what_ran["versions"].keys() >= {"llmcompressor", "transformers"}


def test_norms_that_are_tuned_bring_few_bits_nearer_to_the_original(ran: Callable[..., Ran], tmp_path: Path) -> None:
    (plain, far), (tuned, near) = ran("rtn", weights="int3"), ran("rtn", weights="int3", norm_steps=20)
    assert near < 0.9 * far
    assert tuned.what_ran["norm_kl_last"] < tuned.what_ran["norm_kl_first"]
    assert tuned.file_bytes == plain.file_bytes
    first, second = (load_file(path) for path in sorted(tmp_path.glob("repeat.*/model/model.safetensors")))
    changed = {name for name in first if not torch.equal(first[name], second[name])}
    assert changed == {name for name in first if "norm" in name}


def test_fewer_bits_cost_more(ran: Callable[..., Ran]) -> None:
    costs = [ran("rtn", weights=weights)[1] for weights in ("int8", "int4", "int2")]
    assert 3 * costs[0] < costs[1]
    assert 3 * costs[1] < costs[2]


def test_zero_points_bring_few_bits_nearer_and_those_of_hqq_nearest(ran: Callable[..., Ran]) -> None:
    (_, far), (rtn, near), (hqq, nearest) = (
        ran(method, weights="int2", symmetric=symmetric)
        for method, symmetric in (("rtn", True), ("rtn", False), ("hqq", False))
    )
    assert nearest < near < far
    assert rtn.what_ran["format"] == hqq.what_ran["format"] == "int-quantized"
    assert (rtn.weight_bits, hqq.weight_bits) == (2 + (16 + 2) / 32, 2 + (16 + 16) / 32)


def test_sparsegpt_mends_what_it_takes(ran: Callable[..., Ran], tmp_path: Path, trained_llama: Path) -> None:
    """It changes the weights that stay; Wanda does not. Two of each four neighbors is a harder pattern.

    What names tokens is left alone.
    """
    (summary, mended), (_, wanda), (of_four, mended_of_four) = (
        ran("sparsegpt"),
        ran("wanda"),
        ran("sparsegpt", pattern="2:4"),
    )
    assert 3 * mended < wanda
    assert 1.5 * mended < mended_of_four
    assert 3 * mended < ran("magnitude")[1]
    assert summary.sparsity == pytest.approx(0.5, abs=1e-3)
    assert of_four.sparsity == pytest.approx(0.5, abs=1e-3)
    assert summary.weight_bits == 32
    heads = [load_file(path)["lm_head.weight"] for path in tmp_path.glob("repeat.*/model/*.safetensors")]
    assert len(heads) == 4
    assert all(torch.equal(head, load_file(trained_llama / "model.safetensors")["lm_head.weight"]) for head in heads)


@pytest.fixture
def outliers(trained_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with few channels of large activations, as large models have, beside small weights."""
    model, folder = LlamaForCausalLM.from_pretrained(trained_llama), tmp_path_factory.mktemp("outliers")
    with torch.no_grad():
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            for norm, readers in (
                (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
                (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
            ):
                norm.weight[:8] *= 64
                for reader in readers:
                    reader.weight[:, :8] /= 64
    model.save_pretrained(folder)
    return folder


def test_wanda_keeps_what_large_activations_meet_and_magnitude_does_not(
    ran: Callable[..., Ran], outliers: Path
) -> None:
    (_, wanda), (_, magnitude) = ran("wanda", model=outliers), ran("magnitude", model=outliers)
    assert wanda == pytest.approx(ran("wanda")[1], rel=0.05)
    assert 2 * wanda < magnitude


def test_awq_scales_up_what_large_activations_meet_before_it_rounds(ran: Callable[..., Ran], outliers: Path) -> None:
    (awq, near), (rtn, far) = ran("awq", model=outliers), ran("rtn", model=outliers)
    assert 2 * near < far
    assert awq.weight_bits == rtn.weight_bits == 4.5
    assert awq.file_bytes == rtn.file_bytes
    assert awq.what_ran["format"] == "pack-quantized"


@pytest.mark.parametrize(
    ("method", "keys", "said"),
    [
        ("gptq", {"weights": "int8", "activations": "int8", "group_size": None}, "int-quantized"),
        ("gptq", {"activations": "int8"}, "int-quantized"),
        (
            "smoothquant",
            {"weights": "int8", "activations": "int8", "group_size": None, "smoothing": 0.8},
            "int-quantized",
        ),
        ("rtn", {"weights": "fp8", "activations": "fp8", "group_size": None}, "float-quantized"),
        ("rtn", {"weights": "fp8", "activations": "fp8_static", "group_size": None}, "float-quantized"),
        ("rtn", {"weights": "mxfp4", "group_size": None}, "mxfp4-pack-quantized"),
        ("rtn", {"weights": "nvfp4", "activations": "fp4", "group_size": None}, "nvfp4-pack-quantized"),
        ("autoround", {"iters": 5}, "pack-quantized"),
        ("gptq", {"symmetric": False}, "int-quantized"),
        ("autoround", {"iters": 5, "symmetric": False}, "int-quantized"),
        ("rtn", {"symmetric": False, "group_size": None, "weights": "int8"}, "int-quantized"),
    ],
)
def test_each_format_is_loaded_as_it_was_saved(
    method: str, keys: dict[str, Any], said: str, ran: Callable[..., Ran]
) -> None:
    summary, kl = ran(method, **keys)
    assert summary.what_ran["format"] == said
    assert 0 < kl < 0.02
    assert summary.file_bytes < 0.6 * summary.original_file_bytes
    assert summary.compress_time_s > 0
    assert summary.compress_peak_rss_bytes > 2**27


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autoround_leaves_a_model_its_dtype(
    dtype: torch.dtype, ran: Callable[..., Ran], trained_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("narrow")
    LlamaForCausalLM.from_pretrained(trained_llama, dtype=dtype).save_pretrained(folder)
    summary, kl = ran("autoround", iters=5, model=folder)
    assert 0 < kl < 0.02
    assert summary.what_ran["dtype"] == str(dtype).removeprefix("torch.")
