"""Half-quadratic quantization: the errors that it leaves beside those of rounding, and the folder that it writes."""

from __future__ import annotations

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch
from small_llama import MakePlan
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from llmexp.compress.config import CalibrationText, Quantize
from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.errors import ConfigError
from llmexp.launchers.compress import half_quadratic, worker
from llmexp.launchers.compress.loading import matrices_of
from llmexp.launchers.compress.quality import documents_read
from llmexp.launchers.compress.text import split_text
from llmexp.launchers.rank.frame import Rank
from llmexp.record.samples import read_samples

pytestmark = pytest.mark.long
CPU = torch.device("cpu")
GROUP = 32
HQQ = os.environ.get("LLMEXP_HQQ")


def recipe(bits: int, group_size: int | None = GROUP) -> Quantize:
    return Quantize(name="hqq", method="hqq", weights=f"int{bits}", group_size=group_size, symmetric=False)


def rounded(groups: torch.Tensor, bits: int) -> torch.Tensor:
    """Round to nearest with a scale and an integer zero point a group, between its least and its largest weight."""
    low, high = groups.amin(1, keepdim=True).clamp(max=0), groups.amax(1, keepdim=True).clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    zero = (-low / scale).round()
    return ((groups / scale + zero).round().clamp(0, 2**bits - 1) - zero) * scale


def restored(groups: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, bits: int) -> torch.Tensor:
    half = 2 ** (bits - 1)
    return ((groups / scale + zero).round().clamp(-half, half - 1) - zero) * scale


def left(groups: torch.Tensor, found: torch.Tensor) -> float:
    return float((groups - found).abs().pow(0.7).mean())


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@torch.no_grad()
@pytest.mark.parametrize("bits", [2, 3])
def test_few_bits_leave_smaller_errors_than_by_rounding(bits: int, trained_llama: Path) -> None:
    """Its measure is the mean of |error|^0.7; where the search begins, zero points are real numbers already."""
    for matrix in matrices_of(load(trained_llama)).values():
        groups = matrix.view(-1, GROUP)
        scale, zero = half_quadratic.scale_and_zero(groups, bits)
        begin = -(2 ** (bits - 1)) - groups.amin(1, keepdim=True) / scale
        found, first = (left(groups, restored(groups, scale, each, bits)) for each in (zero, begin))
        assert found < first
        assert found < 0.97 * left(groups, rounded(groups, bits))


@torch.no_grad()
def test_the_model_stays_nearer_than_by_rounding(trained_llama: Path) -> None:
    """With more bits both are near, and which is nearer hangs on the processor that trained the model."""
    bits = 2
    text = split_text(
        CalibrationText(seq_len=64, calibration_sequences=1, held_out_documents=8, document_tokens=384), 0, 320
    )
    original, searched, plain = (load(trained_llama) for _ in range(3))
    half_quadratic.quantize(searched, recipe(bits))
    for matrix in matrices_of(plain).values():
        matrix.copy_(rounded(matrix.view(-1, GROUP), bits).view_as(matrix))
    near, far = (
        sum(sample.kl for sample in documents_read(original, model, text.held_out, CPU)) for model in (searched, plain)
    )
    assert 0 < near < far


def test_a_group_of_one_value_is_kept() -> None:
    groups = torch.tensor([[0.5] * 4, [0.0] * 4, [-3.25] * 4])
    scale, zero = half_quadratic.scale_and_zero(groups, 2)
    assert torch.equal(restored(groups, scale, zero, 2), groups)


@pytest.fixture
def optimize() -> Any:
    """Load the library's search alone: where hqq can be imported, transformers does so and compiles."""
    if not HQQ:
        pytest.skip("pip install --no-deps --target FOLDER hqq, and set LLMEXP_HQQ=FOLDER")
    spec = spec_from_file_location("hqq_optimize", Path(HQQ) / "hqq" / "core" / "optimize.py")
    assert spec
    assert spec.loader
    spec.loader.exec_module(module := module_from_spec(spec))
    return module


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_the_library_of_the_method_finds_the_same(bits: int, optimize: Any) -> None:
    """It keeps the last zero point where all steps are taken, even one that is no better: few codes differ."""
    groups, half = torch.randn(256, GROUP, generator=torch.Generator().manual_seed(0)), 2 ** (bits - 1)
    scale, zero = half_quadratic.scale_and_zero(groups, bits)
    low, high = groups.aminmax(dim=1, keepdim=True)
    inverse = (2 * half - 1) / (high - low)
    codes, _, theirs = optimize.optimize_weights_proximal_v2(
        groups, scale=inverse, zero=-low * inverse, min_max=[0, 2 * half - 1], axis=1
    )
    ours = (groups / scale + zero).round().clamp(-half, half - 1) + half
    assert (ours != codes).float().mean() < 0.002
    assert torch.allclose(zero + half, theirs, atol=0.03)


def test_experts_are_refused() -> None:
    config = Qwen3MoeConfig(
        vocab_size=32, hidden_size=16, moe_intermediate_size=16, num_hidden_layers=1, num_experts=2, head_dim=8
    )
    with pytest.raises(
        ConfigError, match=r"^compress\.symmetric=false: transformers loads no zero points of experts: choose rtn"
    ):
        half_quadratic.quantize(Qwen3MoeForCausalLM(config), recipe(4, 16))


@pytest.mark.parametrize(
    ("bits", "group_size", "dtype"), [(4, 32, "float32"), (3, 64, "bfloat16"), (2, None, "float32")]
)
def test_the_folder_is_read_back_as_it_was_written(
    bits: int, group_size: int | None, dtype: str, trained_llama: Path, compress_plan: MakePlan, tmp_path: Path
) -> None:
    """The run itself fails where the loaded model is not the saved one."""
    pytest.importorskip("compressed_tensors", reason="make compress-venv installs it")
    folder = tmp_path / "trained"
    AutoModelForCausalLM.from_pretrained(trained_llama, dtype=getattr(torch, dtype)).save_pretrained(folder)
    summary, kl = _run(
        compress_plan("hqq", model=folder, **recipe(bits, group_size).model_dump(exclude={"name", "method"})), tmp_path
    )
    assert summary.what_ran["format"] == "int-quantized"
    assert summary.parameters == summary.original_parameters
    if group_size:
        assert summary.weight_bits == bits + 32 / group_size
    assert summary.file_bytes < summary.original_file_bytes - summary.compressed_parameters * 0.75
    assert 0 < kl < {4: 0.01, 3: 0.01, 2: 0.1}[bits]


def _run(plan: Any, folder: Path) -> tuple[CompressionSummary, float]:
    rank = Rank(0, 0, 1, folder)
    summary = worker.work(plan, rank)
    samples = read_samples(rank.samples_path, DocumentSample)
    return summary, sum(sample.kl for sample in samples) / sum(sample.tokens for sample in samples)
