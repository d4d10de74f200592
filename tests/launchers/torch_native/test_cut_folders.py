"""Models of a folder, with its weights, cut over real gloo ranks by engine=torch: the training of one rank."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cut_training import FP32_TOLERANCE, PROTOCOL, SAMPLES, mean_losses
from marks import tier
from planning import Measurement, make_plan
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from llmexp.errors import ConfigError
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.ranks

SIZES = {
    "vocab_size": 288,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
KINDS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES, architectures=["LlamaForCausalLM"]),
    "tied": Qwen3Config(**SIZES | {"tie_word_embeddings": True}, head_dim=16, architectures=["Qwen3ForCausalLM"]),
    "mistral": MistralConfig(**SIZES, sliding_window=24),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "qwen3_moe": Qwen3MoeConfig(
        **SIZES, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, output_router_logits=False
    ),
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 0}
KINDS["windows"] = Qwen3Config(**SIZES, head_dim=16, **WINDOWS, architectures=["Qwen3ForCausalLM"])
LATENT = {"q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14}
GROUPED = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
KINDS |= {
    "mixtral": MixtralConfig(**SIZES, num_local_experts=4),
    "deepseek_v3": DeepseekV3Config(**SIZES | LATENT | GROUPED | ROUTED | {"num_key_value_heads": 4}),
}
LLAMA = {"architectures": ["LlamaForCausalLM"]}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
KINDS |= {
    "dropping": LlamaConfig(**SIZES, **LLAMA, attention_dropout=0.1),
    "dynamic": LlamaConfig(**SIZES, **LLAMA, rope_parameters=DYNAMIC),
    "biased": LlamaConfig(**SIZES, **LLAMA, attention_bias=True),
    "balancing": MixtralConfig(
        **SIZES, architectures=["MixtralForCausalLM"], num_local_experts=4, output_router_logits=True
    ),
}
LAYOUTS = {
    "llama, tp, Z3": "parallelism.tp=2 method=Z3",
    "llama, tp along the sequence": "parallelism.tp=2 parallelism.sequence=true",
    "llama, cp": "parallelism.cp=2",
    "mistral, tp": "parallelism.tp=2",
    "qwen3, tp": "parallelism.tp=2",
    "tied, tp, Z2": "parallelism.tp=2 method=Z2",
    "mixtral, cp": "parallelism.cp=2",
    "mixtral, ep": "parallelism.dp=2 parallelism.ep=2",
    "qwen3_moe, ep": "parallelism.dp=2 parallelism.ep=2",
    "deepseek_v3, ep": "parallelism.dp=2 parallelism.ep=2",
    "qwen3_moe, cp": "parallelism.cp=2",
    "deepseek_v3, cp": "parallelism.cp=2",
    "deepseek_v3, cp, Z1": "parallelism.cp=2 method=Z1",
}


def folder(kind: str, place: Path) -> Path:
    """A folder with random weights, of which gains and biases are not those of a new model either."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(KINDS[kind])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(place / kind)
    return place / kind


def plan(place: Path | str, words: str) -> TrainingPlan:
    dp = 2 if "parallelism.dp=2" in words else 1
    of_folder = f"model=hf model.path={place} model.weights=pretrained engine=torch hardware=cpu data.seq_len=48"
    defaults = "precision=fp32" + " parallelism.dp=1" * (dp == 1)
    return make_plan(*PROTOCOL, *f"{of_folder} {defaults} batch.accumulation={SAMPLES // dp} {words}".split())


@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(name, {"llama, tp, Z3"}, LAYOUTS)) for name in LAYOUTS])
def test_ranks_compute_what_one_rank_computes(observe: Callable[..., Measurement], tmp_path: Path, name: str) -> None:
    place, words = folder(name.partition(",")[0], tmp_path), LAYOUTS[name]
    made = plan(place, words)
    assert made.skip is None
    (alone,) = observe({"whole": plan(place, "")}, 1, "updates_worker")["whole"]
    ranks = observe({name: made}, made.processes, "updates_worker")[name]
    assert alone["loss"][-1] < alone["loss"][0] - 0.01
    assert mean_losses(ranks) == pytest.approx(alone["loss"], rel=FP32_TOLERANCE)
    for rank in ranks:
        assert rank["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=FP32_TOLERANCE)
    assert made.memory is not None
    for kind in ("parameters", "gradients", "optimizer"):
        assert {rank["state"][kind] for rank in ranks} == {getattr(made.memory, kind).device}, kind


@pytest.mark.parametrize(
    ("kind", "words", "reason"),
    [
        ("qwen3_moe", "parallelism.tp=2", "it takes models of architecture llama, mistral, qwen3, not model=qwen3_moe"),
        (
            "mixtral",
            "parallelism.tp=2",
            "(mixtral): set parallelism.ep, parallelism.etp=1 and parallelism.seq",
        ),
        ("mistral", "parallelism.cp=2", "not model=mistral (mistral)"),
        ("windows", "parallelism.cp=2", "it has no windows, and one of model=windows ends within data.seq_len=48"),
        ("windows", "parallelism.cp=2 parallelism.cp_kind=ulysses", "it has no windows, and one of model=windows ends"),
        ("dropping", "parallelism.tp=2", "drop different scores by attention_dropout=0.1 of config.json: set 0"),
        ("dropping", "parallelism.cp=2", "drop different scores by attention_dropout=0.1 of config.json: set 0"),
        ("balancing", "parallelism.cp=2", "output_router_logits of config.json balances experts over whole sequences"),
        ("dynamic", "parallelism.cp=2", "rope_type=dynamic of config.json goes by the last position"),
        ("biased", "parallelism.tp=2", "without biases, and config.json of model=biased has some"),
        ("qwen3_moe", "parallelism.dp=3 parallelism.ep=3", "it does not divide the 4 experts of model=qwen3_moe"),
    ],
)
def test_what_a_folders_model_cannot_be_cut_into_is_a_skip(tmp_path: Path, kind: str, words: str, reason: str) -> None:
    KINDS[kind].save_pretrained(tmp_path / kind)
    assert reason in str(plan(tmp_path / kind, f"model.weights=random {words}").skip)


@pytest.mark.parametrize("words", ["method=Q", "optimizer=adalomo precision=fp32", "method=L task=finetune"])
def test_experts_of_a_folder_are_stacks_of_matrices_as_any_are(tmp_path: Path, words: str) -> None:
    KINDS["mixtral"].save_pretrained(tmp_path / "mixtral")
    skip = str(plan(tmp_path / "mixtral", f"model.weights=random batch.accumulation=1 {words}").skip)
    assert "stacks of" in skip, skip


@pytest.mark.parametrize("degree", ["tp", "pp"])
def test_a_name_of_the_hub_tells_no_sizes_to_cut(degree: str) -> None:
    skip = plan("organization/name", f"model.weights=random parallelism.{degree}=2").skip
    assert "the config.json of model.path=organization/name is not here: set a folder" in str(skip)


def test_a_degree_that_does_not_divide_a_folders_heads_is_refused(tmp_path: Path) -> None:
    KINDS["llama"].save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"parallelism\.tp=3 does not divide model\.num_heads=4"):
        plan(tmp_path, "model.weights=random parallelism.tp=3")


@pytest.mark.parametrize("degree", ["tp", "pp", "cp", "ep"])
def test_code_of_a_folders_own_is_not_cut(tmp_path: Path, degree: str) -> None:
    KINDS["llama"].save_pretrained(tmp_path)
    place = tmp_path / "config.json"
    named = json.loads(place.read_text()) | {"auto_map": {"AutoModelForCausalLM": "own.Model"}}
    place.write_text(json.dumps(named))
    words = f"model.weights=random model.trust_remote_code=true parallelism.{degree}=2"
    skip = plan(tmp_path, words + " parallelism.dp=2" * (degree == "ep")).skip
    assert "auto_map in the config.json" in str(skip)
