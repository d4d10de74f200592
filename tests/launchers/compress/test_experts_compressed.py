"""Mixtures of experts: the matrices in their stacks are found, counted and compressed, and all else can stay."""

from __future__ import annotations

import random
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_llama import SIZES, MakePlan
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from llmexp.cli.resolvers import server_python
from llmexp.compress.planning import _EXPERT_FAMILIES
from llmexp.compress.record import CompressionSummary, DocumentSample
from llmexp.launchers.compress import worker
from llmexp.launchers.compress.loading import matrices_of
from llmexp.launchers.compress.oneshot import OF_EXPERTS
from llmexp.launchers.data.text_files import library_modules
from llmexp.launchers.rank.frame import Rank
from llmexp.record.samples import read_samples

pytestmark = pytest.mark.long
EXPERTS, WIDE, STEPS = 4, 32, 100
PYTHON = server_python("compress")
LAYERS, HIDDEN = SIZES["num_hidden_layers"], SIZES["hidden_size"]
OF_ALL_EXPERTS = LAYERS * EXPERTS * 3 * HIDDEN * WIDE
OF_ATTENTION = LAYERS * HIDDEN * (2 * HIDDEN + 2 * HIDDEN // 2)


def _model() -> Any:
    torch.manual_seed(0)
    sizes = SIZES | {"head_dim": 16, "moe_intermediate_size": WIDE}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, num_experts=EXPERTS, num_experts_per_tok=2))


ROUTED = {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "n_routed_experts": 4}
SHARED: dict[str, Any] = {"moe_intermediate_size": WIDE, "shared_expert_intermediate_size": 64, "num_experts": 4}
SHARED["num_experts_per_tok"] = 2
FAMILIES: dict[str, dict[str, Any]] = {
    "deepseek_v3": ROUTED
    | {"moe_intermediate_size": WIDE, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32}
    | {"qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 32},
    "glm4_moe": ROUTED | {"moe_intermediate_size": WIDE, "head_dim": 16},
    "mixtral": {"num_local_experts": 4},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2, "eos_token_id": None},
    "qwen2_moe": SHARED,
    "qwen3_next": SHARED
    | {"head_dim": 16, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16}
    | {"linear_value_head_dim": 16, "layer_types": ["linear_attention", "full_attention"]},
}


@pytest.fixture(scope="session")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a mixture of experts that has read some of Python's library."""
    folder, draw = tmp_path_factory.mktemp("experts"), random.Random(0)
    read = torch.tensor(list(b"".join(path.read_bytes() for path in library_modules()[:40])))
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(STEPS):
        tokens = torch.stack([read[begin : begin + 64] for begin in draw.choices(range(len(read) - 64), k=8)])
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def test_each_experts_matrices_are_the_models_own_memory() -> None:
    model = _model()
    alone, everything = matrices_of(model, experts_alone=True), matrices_of(model)
    assert sum(matrix.numel() for matrix in alone.values()) == OF_ALL_EXPERTS
    assert sum(matrix.numel() for matrix in everything.values()) == OF_ALL_EXPERTS + OF_ATTENTION
    up = alone["model.layers.1.mlp.experts.2.up_proj"]
    assert up.shape == (WIDE, HIDDEN)
    up.zero_()
    stack = model.model.layers[1].mlp.experts.gate_up_proj
    assert not stack[2, WIDE:].any()
    assert stack[2, :WIDE].any()
    assert stack[1].all()


def test_llm_compressor_is_told_the_matrices_of_experts_alone() -> None:
    pattern = re.compile(OF_EXPERTS.removeprefix("re:"))
    others = ("mlp.gate", "self_attn.q_proj", "mlp.gate_proj", "mlp.shared_expert.gate_proj")
    assert not any(pattern.match(f"model.layers.0.{name}") for name in others)
    named = [*matrices_of(_model(), experts_alone=True)]
    assert all(pattern.match(name) for name in named)


@pytest.fixture
def compressed(compress_plan: MakePlan, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def run(method: str, model: Path | None = None, **keys: Any) -> tuple[CompressionSummary, float]:
        model = model or request.getfixturevalue("experts")
        folder = tmp_path / f"repeat.{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        rank = Rank(0, 0, 1, folder)
        options = {"python": PYTHON, "modifier": {}}
        summary = worker.work(compress_plan(method, model=model, engine_config=options, **keys), rank)
        samples = read_samples(rank.samples_path, DocumentSample)
        return summary, sum(sample.kl for sample in samples) / sum(sample.tokens for sample in samples)

    return run


def test_magnitude_takes_experts_too(compressed: Any, tmp_path: Path) -> None:
    _model().save_pretrained(tmp_path / "repeat.model")
    summary, _ = compressed("magnitude", model=tmp_path / "repeat.model")
    assert summary.sparsity == pytest.approx(0.5, abs=1e-3)
    assert summary.compressed_parameters == OF_ALL_EXPERTS + OF_ATTENTION


@pytest.fixture(scope="session")
def with_llm_compressor() -> None:
    """Skip before the experts are trained."""
    if not PYTHON or not find_spec("compressed_tensors"):
        pytest.skip("no llm-compressor: make compress-venv, or set LLMEXP_COMPRESS_PYTHON")


@pytest.mark.slow
@pytest.mark.usefixtures("with_llm_compressor")
def test_experts_alone_take_few_bits_and_load_as_they_were(compressed: Any, tmp_path: Path, experts: Path) -> None:
    costs = {}
    for bits in (4, 3, 2):
        summary, costs[bits] = compressed("gptq", layers="experts", weights=f"int{bits}")
        assert summary.weight_bits == bits + 16 / 32
        assert summary.compressed_parameters == OF_ALL_EXPERTS
        assert summary.file_bytes < summary.original_file_bytes - OF_ALL_EXPERTS * 2
        assert summary.parameters == summary.original_parameters
    assert 1.5 * costs[4] < costs[3] < costs[2] / 1.5
    assert costs[2] < compressed("rtn", layers="experts", weights="int2")[1]
    before = load_file(experts / "model.safetensors")
    after = load_file(next(iter(sorted(tmp_path.glob("repeat.*/model")))) / "model.safetensors")
    kept = [name for name in before if ".experts." not in name]
    assert len(kept) > LAYERS
    assert all(torch.equal(before[name], after[name]) for name in kept)


@pytest.mark.slow
@pytest.mark.usefixtures("with_llm_compressor")
@pytest.mark.parametrize(
    ("method", "keys"),
    [("gptq", {}), ("sparsegpt", {}), ("rtn", {"weights": "int8", "layers": "experts", "group_size": None})],
)
def test_other_recipes_of_a_mixture_load_as_they_were(method: str, keys: dict[str, Any], compressed: Any) -> None:
    summary, kl = compressed(method, **keys)
    assert 0 < kl < 0.3
    everything = OF_ALL_EXPERTS + OF_ATTENTION * ("layers" not in keys)
    assert summary.compressed_parameters == everything


@pytest.mark.slow
@pytest.mark.usefixtures("with_llm_compressor")
@pytest.mark.parametrize("layers", ["experts", "all"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_experts_load_as_they_were(family: str, layers: str, compressed: Any, tmp_path: Path) -> None:
    """Random weights are enough: the run fails where what was loaded is not what was saved."""
    assert {*FAMILIES, "qwen3_moe"} == {*_EXPERT_FAMILIES}
    torch.manual_seed(0)
    sizes = SIZES | {"num_hidden_layers": 2, "initializer_range": 0.1} | FAMILIES[family]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).float()
    model.save_pretrained(tmp_path / "repeat.model")
    summary, kl = compressed("gptq", model=tmp_path / "repeat.model", layers=layers)
    counted = matrices_of(model, experts_alone=layers == "experts")
    assert summary.compressed_parameters == sum(matrix.numel() for matrix in counted.values())
    assert summary.weight_bits == 4 + 16 / 32
    assert kl > 0
