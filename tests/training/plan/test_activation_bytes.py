from __future__ import annotations

from collections.abc import Callable

import pytest

from llmexp.inputs.shape import shape_of
from llmexp.training.plan.activations import Activations, activations, layers_in_flight, passes_in_flight
from llmexp.training.plan.training_plan import TrainingPlan

Made = Callable[..., TrainingPlan]


def of(plan: TrainingPlan, micro: int = 1) -> Activations:
    shape = shape_of(plan.config.model)
    assert shape is not None
    return activations(shape, plan.config, plan.techniques, plan.dims, micro)


def test_naive_7b_keeps_the_terms_that_are_counted_by_hand(plan: Made):
    """32 layers of 350 tokens in bf16, and the head of 32,000 words."""
    tokens, hidden, wide, words = 350, 4096, 11008, 32000
    norms = 2 * (hidden * (4 + 2) + 4)
    operands = 2 * (3 * hidden + hidden + hidden)
    mlp = 2 * (4 * wide + hidden)
    scores = 32 * tokens * tokens * (4 + 2)
    head = tokens * (hidden * (4 + 2 + 2) + 4 + 4 * words)
    kept = 32 * (tokens * (norms + operands + mlp) + scores) + head
    assert of(plan("model=7b", "method=Naive", "precision=bf16_pure", "data.seq_len=350")).kept == kept


@pytest.mark.parametrize("method", ["Naive", "F", "R", "RS", "F+C"])
def test_activations_grow_with_the_batch_and_nothing_else(method: str, plan: Made):
    made = plan("model=7b", f"method={method}", "precision=bf16_pure")
    one, eight = of(made), of(made, 8)
    assert eight.kept == pytest.approx(8 * one.kept, rel=1e-6)
    assert eight.peak == pytest.approx(8 * one.peak, rel=1e-6)


def test_less_is_kept_by_each_of_the_atoms_that_are_to_save_memory(plan: Made):
    kept = {name: of(plan("model=7b", f"method={name}")).peak for name in ("Naive", "RS", "F", "F+C", "F+R")}
    assert kept["Naive"] > kept["F"] > kept["F+C"] > kept["F+R"]
    assert kept["Naive"] > kept["RS"]


def test_attention_grows_with_the_square_of_the_sequence_unless_it_is_fused(plan: Made):
    def growth(method: str) -> float:
        short, long = (of(plan("model=7b", f"method={method}", f"data.seq_len={n}")).kept for n in (512, 4096))
        return long / short

    assert growth("F") == pytest.approx(8, rel=1e-6)
    assert growth("Naive") > 20


def test_degrees_cut_what_a_rank_keeps(plan: Made):
    words = ["engine=megatron", "model=7b", "data.seq_len=512", "method=F"]
    whole = of(plan(*words)).kept
    tensor = of(plan(*words, "parallelism.tp=4")).kept
    sequence = of(plan(*words, "parallelism.tp=4", "parallelism.sequence=true")).kept
    context = of(plan(*words, "parallelism.cp=2")).kept
    assert whole / 4 < sequence < tensor < whole
    # Each rank keeps all angles of rotary embeddings.
    assert sequence == pytest.approx(whole / 4, rel=0.025)
    assert context == pytest.approx(whole / 2, rel=1e-6)


def test_a_ring_keeps_no_scores_with_or_without_f(plan: Made):
    words = ["engine=megatron", "model=7b", "data.seq_len=512", "parallelism.cp=2"]
    unfused, fused = (of(plan(*words, f"method={method}")) for method in ("Naive", "F"))
    ulysses = of(plan(*words, "parallelism.cp_kind=ulysses"))
    assert unfused.kept == fused.kept < ulysses.kept / 1.2


def test_a_pipelines_first_rank_holds_a_pass_for_each_stage_after_it(plan: Made):
    words = ["engine=torch", "model=7b", "parallelism.pp=4", "batch.accumulation=8"]
    assert passes_in_flight(plan(*words).dims, 8) == 4
    assert passes_in_flight(plan(*words, "parallelism.schedule=gpipe").dims, 8) == 8
    looped = plan(*words, "parallelism.virtual_stages=2", "parallelism.schedule=interleaved")
    assert passes_in_flight(looped.dims, 8) == 4 * (1 + 3 / 8)


def test_with_the_embedding_as_a_layer_the_fullest_rank_may_be_the_second(plan: Made):
    words = [
        "engine=megatron",
        "model=7b",
        "parallelism.pp=4",
        "batch.accumulation=16",
        "parallelism.ends_as_layers=both",
    ]
    one = plan(*words, "model.num_layers=6").dims
    assert layers_in_flight(6, one, 16) == max(4 * 1, 3 * 2)
    looped = plan(*words, "model.num_layers=14", "parallelism.virtual_stages=2").dims
    # Of two stages with two layers each; the first rank's first stage has one, and is passed 7 times, the second's 5.
    assert layers_in_flight(14, looped, 16) == max(7 * 1 + 4 * 2, 5 * 2 + 4 * 2)
    assert layers_in_flight(14, looped, 4) == 4 * 4, "all ranks hold every pass"


def test_megatron_keeps_what_its_kernels_on_a_gpu_need(plan: Made):
    sizes = plan("model=7b").config.model
    words = ["engine=megatron", "model=7b", "data.seq_len=512", "method=F"]
    by_layers = [of(plan(*words, f"model.num_layers={layers}")).kept for layers in (1, 2)]
    hidden, wide, head = sizes.hidden_size, sizes.intermediate_size, sizes.head_dim
    # Two inputs of norms, their results, queries, keys and values as they came, queries and keys turned, four tables of
    # angles, what was attended to; gate and up, and their product.
    elements = 4 * hidden + 3 * hidden + 2 * hidden + 4 * head + hidden + 3 * wide
    roots_and_sums = 2 * 4 + 4 * sizes.num_heads
    assert by_layers[1] - by_layers[0] == 512 * (2 * elements + roots_and_sums)


def test_offloaded_activations_wait_on_the_host(plan: Made):
    here, there = (of(plan("model=7b", f"memory.activation_offload={told}")) for told in ("false", "true"))
    assert there.on_host == here.kept
    assert there.peak < here.peak / 5
