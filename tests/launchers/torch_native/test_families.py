"""The models of conf/model that are given by fields of a config.json, made small by keys, have the losses of Naive."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import pytest
from planning import Measurement, make_plan

from llmexp.training.plan.training_plan import TrainingPlan

VOCABULARY = 512
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2}
HEADS = {"intermediate_size": 80, "num_attention_heads": 4, "num_key_value_heads": 2}
ROUTED = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
LATENT = {"q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14}
GROUPED = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
GIVEN = {
    "qwen3-30b-a3b": SMALL | HEADS | ROUTED | {"head_dim": 16, "num_experts": 6},
    "qwen3-next-80b-a3b": SMALL
    | HEADS
    | ROUTED
    | LINEAR
    | {"num_hidden_layers": 4, "head_dim": 16, "num_experts": 6, "shared_expert_intermediate_size": 24},
    "deepseek-v3": SMALL | HEADS | ROUTED | LATENT | GROUPED | {"num_key_value_heads": 4},
    "gpt-oss-20b": SMALL | HEADS | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma3-1b": SMALL | HEADS | {"head_dim": 16, "query_pre_attn_scalar": 16},
    "olmo3-7b": SMALL | HEADS,
    "mamba2-2.7b": SMALL | {"num_heads": 8, "head_dim": 16, "state_size": 16},
}
RANKS = {"F": 1, "Z2": 2, "Z3": 2}


def plan(name: str, method: str, ranks: int = 1) -> TrainingPlan:
    fields = [f"model.config.{field}={value}" for field, value in GIVEN[name].items()]
    return make_plan(
        *("hardware=cpu", "engine=torch", f"parallelism.dp={ranks}", "data.seq_len=32", "precision=fp32"),
        *(f"model={name}", "optimizer.lr=1e-2", f"method={method}"),
        *fields,
    )


def losses(observe: Callable[..., Measurement], name: str, method: str, ranks: int = 1) -> tuple[list[float], ...]:
    """Of Naive and of a method."""
    plans = {each: plan(name, each, ranks) for each in ("Naive", method)}
    observed = observe(plans, ranks, "training_worker")
    return tuple(observed[each][0] for each in ("Naive", method))


@pytest.mark.ranks
@pytest.mark.parametrize("name", GIVEN)
def test_it_learns_and_recomputation_changes_no_loss(observe, name: str):
    plain, recomputed = losses(observe, name, "R")
    assert plain[0] == pytest.approx(log(VOCABULARY), rel=0.1)
    assert plain[-1] < plain[0]
    assert recomputed == pytest.approx(plain, rel=1e-5)


@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize("method", RANKS)
@pytest.mark.parametrize("name", GIVEN)
def test_a_method_has_the_losses_of_none(observe, name: str, method: str):
    if skip := plan(name, method).skip:
        pytest.skip(skip.reason)
    plain, changed = losses(observe, name, method, RANKS[method])
    assert changed == pytest.approx(plain, rel=1e-4)
