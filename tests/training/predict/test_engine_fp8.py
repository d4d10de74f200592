"""Layers in fp8 by TransformerEngine: bytes of their kernels by recipe and card, and what ranks send of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmexp.training.plan.fit import activations_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.rates import rates_of
from llmexp.training.predict.schedule import step_time
from llmexp.training.predict.work import Work, work_of
from tests.planning import make_plan

TOKENS, LAYERS, HIDDEN, WIDE, VOCAB = 4096, 32, 4096, 11008, 32000
WORDS = ("model=7b", "engine=megatron", "method=F", f"data.seq_len={TOKENS}", "precision=fp8")
ONE = ("hardware.devices_per_node=1",)
WEIGHTS = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * WIDE)
# Norms, residuals, turned queries and keys, queries of their own, and the gate: nothing of it depends on a recipe.
BESIDE = 2 * 2 * HIDDEN + 2 * 6 * HIDDEN + 4 * 3 * HIDDEN + 6 * WIDE
BESIDE_BEHIND = 2 * 6 * HIDDEN + 2 * 6 * HIDDEN + 10 * WIDE + 4 * 3 * HIDDEN + 4 * 3 * HIDDEN


def made(*words: str) -> TrainingPlan:
    return make_plan(*WORDS, *words)


def work(*words: str) -> Work:
    return work_of(made(*words))


def a_layer(total: float, a_logit: int, weights: float = 0.0) -> float:
    """Return the bytes of a token in one layer."""
    return (total - a_logit * TOKENS * VOCAB - weights * WEIGHTS) / TOKENS / LAYERS


@pytest.mark.parametrize(
    ("hardware", "scaling", "norm", "cast"),
    [
        # A norm writes 16 bits and finds the largest; a cast reads twice, and writes for one or two orders.
        ("b200", "tensorwise", 2 + 2 + 1, 2 + 2 + 1),
        ("h100", "tensorwise", 2 + 2 + 2, 2 + 2 + 2),
        # A norm writes fp8, which is read and written in the other order.
        ("h100", "delayed", 1 + 1 + 1, 2 + 2),
        ("b200", "delayed", 1, 2 + 1),
        ("b200", "mxfp8", 2 + 2 + 2 * 33 / 32, 2 + 2 * 33 / 32),
        ("h100", "blockwise", 2 + 2 + 2 * 33 / 32, 2 + 2 * 33 / 32),
    ],
)
def test_each_recipe_reads_and_writes_what_its_kernels_do(hardware, scaling, norm, cast) -> None:
    found = work(f"hardware={hardware}", *ONE, f"precision.scaling={scaling}")
    assert found.hidden_bytes == 0
    forward = BESIDE + 2 * HIDDEN * norm + (HIDDEN + WIDE) * cast
    assert a_layer(found.cast_bytes, 2, cast) == pytest.approx(forward)
    behind = BESIDE_BEHIND + (5 * HIDDEN + 2 * WIDE) * cast
    assert a_layer(found.cast_bytes_behind, 4) == pytest.approx(behind)


def test_weights_are_cast_once_a_step() -> None:
    once, often = (work("hardware=h100", *ONE, f"batch.accumulation={passes}") for passes in (1, 4))
    assert once.cast_bytes - often.cast_bytes == pytest.approx(6 * WEIGHTS * 3 / 4)
    assert once.cast_bytes_behind == often.cast_bytes_behind


def test_sequences_in_parts_are_cast_before_they_are_gathered_and_turned_after() -> None:
    layout = ("hardware=h100", "hardware.devices_per_node=4", "parallelism.tp=4", "parallelism.sequence=true")
    found = work(*layout)
    here, wide = HIDDEN / 4, WIDE / 4
    casts = 5 * 2 * here + 6 * (here + wide)
    weights = 6 * WEIGHTS / 4
    forward = (found.cast_bytes - 2 * TOKENS * VOCAB / 4 - weights) / TOKENS / LAYERS
    assert forward == pytest.approx(BESIDE / 4 + casts)
    behind = (found.cast_bytes_behind - 4 * TOKENS * VOCAB / 4) / TOKENS / LAYERS
    # Gradients of the two rows' results are cast here; with two inputs they are turned in the length of all ranks.
    casts = 6 * (3 * here + 2 * wide) + 5 * 2 * here + 4 * 2 * HIDDEN
    assert behind == pytest.approx(BESIDE_BEHIND / 4 + casts)
    blocks = work(*layout, "hardware=b200", "hardware.devices_per_node=4", "precision.scaling=mxfp8")
    behind = (blocks.cast_bytes_behind - 4 * TOKENS * VOCAB / 4) / TOKENS / LAYERS
    assert behind == pytest.approx(BESIDE_BEHIND / 4 + (2 + 2 * 33 / 32) * (5 * here + 2 * wide))


def test_half_of_what_sequence_parallelism_sends_is_in_fp8() -> None:
    layout = ("hardware=h100", "hardware.devices_per_node=4", "parallelism.tp=4", "parallelism.sequence=true")
    low, high = work(*layout), work(*layout, "precision=bf16_mixed")
    assert low.tensor_bytes == pytest.approx(0.75 * high.tensor_bytes)
    # What is gathered again: of four bytes sent one in fp8, of all in 16 bits a half.
    assert low.tensor_bytes * low.sequence == pytest.approx(high.tensor_bytes * high.sequence / 2)
    whole = ("hardware=h100", "hardware.devices_per_node=4", "parallelism.tp=4")
    assert work(*whole).tensor_bytes == work(*whole, "precision=bf16_mixed").tensor_bytes


def test_a_stage_has_its_share_and_the_last_one_the_loss() -> None:
    words = ("hardware=h100", "hardware.devices_per_node=4", "batch.accumulation=8")
    whole, stage = work(*words, "parallelism.dp=4"), work(*words, "parallelism.pp=4")
    assert stage.fp8_flops == whole.fp8_flops / 4
    assert stage.products_flops == whole.products_flops
    logits = 4 * TOKENS * VOCAB
    assert stage.cast_bytes_behind - logits == pytest.approx((whole.cast_bytes_behind - logits) / 4)


def test_frozen_weights_need_no_other_order_and_no_gradient() -> None:
    words = ("hardware=h100", *ONE, "task=finetune")
    frozen, trained = made(*words, "method=L+F"), made(*words)
    low, high = work_of(frozen), work_of(trained)
    assert low.cast_bytes < high.cast_bytes
    assert high.cast_bytes_behind - low.cast_bytes_behind == pytest.approx(
        TOKENS * LAYERS * (5 * HIDDEN + 2 * WIDE), rel=1e-6
    )
    rates = replace(rates_of(trained)[0], launch_s=0.0)
    assert step_time(low, rates).backward < 0.7 * step_time(high, rates).backward


def test_products_are_as_narrow_as_tensor_parallelism_leaves_them() -> None:
    wide, cut = work("hardware=h100", *ONE), work("hardware=h100", "hardware.devices_per_node=8", "parallelism.tp=8")
    assert wide.fp8_narrow == pytest.approx(2.0)
    assert 4 < cut.fp8_narrow < 16


@pytest.mark.parametrize(("scaling", "kept"), [("tensorwise", 1.0), ("mxfp8", 33 / 32)])
def test_inputs_of_products_are_kept_in_fp8(scaling: str, kept: float) -> None:
    words = ("hardware=b200", *ONE, f"precision.scaling={scaling}")
    low, high = activations_of(made(*words), 1), activations_of(made(*words, "precision=bf16_mixed"), 1)
    assert low
    assert high
    # Attention keeps its own result in 16 bits; its product keeps another in fp8.
    saved = (2 - kept) * (2 * HIDDEN + WIDE) - kept * HIDDEN
    assert high.kept - low.kept == pytest.approx(TOKENS * LAYERS * saved, rel=1e-6)


@pytest.mark.parametrize(
    ("hardware", "scaling", "bytes_each"),
    [("b200", "tensorwise", 1), ("h100", "tensorwise", 2), ("b200", "mxfp8", 33 / 16), ("rtxpro6000", "delayed", 2)],
)
def test_weights_are_in_fp8_in_the_orders_of_their_products(hardware: str, scaling: str, bytes_each: float) -> None:
    words = (f"hardware={hardware}", *ONE, f"precision.scaling={scaling}")
    low, high = made(*words).memory, made(*words, "precision=bf16_mixed").memory
    assert low
    assert high
    assert low.parameters.device - high.parameters.device == pytest.approx((bytes_each - 2) * WEIGHTS, abs=2)
