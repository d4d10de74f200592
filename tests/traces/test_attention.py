"""Operations of attention in one kernel, from what the profiler writes of its inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmexp.record.breakdown import Breakdown
from llmexp.record.counted import AttentionTime
from llmexp.traces.breakdown import break_down, read_profile
from llmexp.traces.inputs import ATTENTION, Places

SDPA, FLASH = "aten::_scaled_dot_product_flash_attention", "flash_attn::_flash_attn"
KERNEL = "pytorch_flash::flash_fwd_kernel"


def called(made, name: str, shapes: dict[int, list[int]], at: float = 0, **values: Any) -> None:
    """Add a call with shapes and values by their places, and a kernel of 10 us that it launches."""
    places = ATTENTION[name]
    number = 1 + max(*shapes, places.causal, places.window or 0)
    dims = [shapes.get(place, []) for place in range(number)]
    texts = [
        str(values.get({places.causal: "causal", places.window: "window"}.get(place, ""), ""))
        for place in range(number)
    ]
    types = ["c10::BFloat16" if place in shapes else "Scalar" for place in range(number)]
    made.operator(name, at, at + 9, **{"Input Dims": dims, "Input type": types, "Concrete Inputs": texts})
    made.kernel(KERNEL, 1000 + at, 1010 + at, launched=at + 1)


def equal(shape: list[int], number: int = 3) -> dict[int, list[int]]:
    return {place: list(shape) for place in range(number)}


def attention(made) -> tuple[AttentionTime, Breakdown]:
    found = break_down(read_profile(made.file()))
    (one,) = found.attention
    return one, found


def test_forward_is_two_products_and_a_causal_mask_halves_them(made) -> None:
    for at in (0, 20):
        called(made, SDPA, {0: [2, 8, 10, 64], 1: [2, 4, 10, 64], 2: [2, 4, 10, 64]}, at, causal=True)
    one, found = attention(made)
    assert (one.calls, one.work_ns, one.dtype, one.causal, one.backward) == (2, 20_000, "bf16", True, False)
    assert (one.batch, one.heads, one.kv_heads, one.queries, one.keys, one.head_dim) == (2, 8, 4, 10, 10, 64)
    forward = 2 * 2 * 8 * (10 * 10 / 2) * (64 + 64) * 2  # calls, batch, heads, pairs, both products, 2 a multiplication
    assert one.flops == found.counted_flops == forward
    # Queries and results of 8 heads, keys and values of 4, two bytes each.
    assert one.least_bytes == 2 * 2 * 10 * (2 * 8 + 2 * 4) * 64 * 2
    assert (found.counted_ns, found.compute_ns) == (20_000, 20_000)


def test_backward_takes_two_and_a_half_times_as_many(made) -> None:
    shape = [1, 4, 32, 16]
    called(made, f"{SDPA}_backward", equal(shape, 5), causal=False)
    backward = attention(made)[0]
    assert backward.backward
    assert backward.flops == 2.5 * (2 * 4 * 32 * 32 * (16 + 16))


def test_an_operator_that_calls_another_counts_once_with_all_its_kernels(made) -> None:
    tokens_first, heads_first = [1, 10, 8, 64], [1, 8, 10, 64]
    called(made, SDPA, equal(heads_first), causal=True)
    made.operator("aten::_flash_attention_forward", 2, 8, **{"Input Dims": [tokens_first] * 3})
    made.kernel("pad_kernel", 1020, 1022, launched=3)
    one, _ = attention(made)
    assert (one.operator, one.calls, one.work_ns) == (SDPA, 1, 12_000)


def test_without_a_wrapper_tokens_come_before_heads(made) -> None:
    called(made, "aten::_flash_attention_forward", equal([3, 10, 8, 64]), causal=False)
    one, _ = attention(made)
    assert (one.batch, one.heads, one.queries) == (3, 8, 10)


def test_packed_sequences_count_as_if_they_were_equally_long_which_is_the_least(made) -> None:
    shapes = {**equal([100, 8, 64]), 3: [5]}  # 4 sequences of 25
    called(made, f"{FLASH}_varlen_forward", shapes, causal=True)
    one, _ = attention(made)
    assert (one.equal_lengths, one.batch, one.queries, one.pairs) == (True, 4, 25, 25 * 25 / 2)
    assert one.flops == 4 * 8 * 25 * 25 / 2 * 2 * (64 + 64)


@pytest.mark.parametrize(
    ("name", "queries", "keys", "pairs"),
    [
        (f"{FLASH}_forward", 1, 9, 8.5),  # the one query is the last token
        (f"{FLASH}_forward", 9, 1, 0.5),
        (SDPA, 4, 10, 8),  # the first query sees the first key alone
        (SDPA, 10, 4, 32),
    ],
)
def test_a_causal_mask_is_aligned_as_the_kernel_does_it(made, name: str, queries: int, keys: int, pairs: float) -> None:
    def shape(tokens: int) -> list[int]:
        return [1, 2, tokens, 8] if ATTENTION[name].heads_first else [1, tokens, 2, 8]

    called(made, name, {0: shape(queries), 1: shape(keys), 2: shape(keys)}, causal=True)
    assert attention(made)[0].pairs == pairs


@pytest.mark.parametrize(
    ("shapes", "values"),
    [
        (equal([1, 10, 8, 64]), {"window": 128}),
        ({0: [1, 10, 8, 64], 1: [7], 2: []}, {}),
        ({0: [1, 10, 8, -64], 1: [1, 10, 8, 64], 2: [1, 10, 8, 64]}, {}),
        ({0: [10**30, 10, 8, 64], 1: [1, 10, 8, 64], 2: [1, 10, 8, 64]}, {}),
    ],
    ids=["a window", "no tensors", "a negative size", "a size that cannot be"],
)
def test_what_does_not_tell_its_pairs_is_not_counted(
    made, shapes: dict[int, list[int]], values: dict[str, int]
) -> None:
    called(made, f"{FLASH}_forward", shapes, causal=True, **values)
    found = break_down(read_profile(made.file()))
    assert (found.attention, found.counted_ns, found.counted_flops) == ([], 0, 0)


@pytest.mark.parametrize("name", [name for name in ATTENTION if name.startswith("aten::")])
def test_the_places_of_inputs_are_those_of_torch(name: str) -> None:
    (schema,) = (each for each in torch._C._jit_get_schemas_for_operator(name) if not each.overload_name)
    at = {argument.name: place for place, argument in enumerate(schema.arguments)}
    causal = at.get("is_causal", at.get("custom_mask_type"))
    lengths = None if ATTENTION[name].heads_first else at.get("cum_seq_q", at.get("cu_seqlens_q"))
    window = at.get("window_size_left", at.get("window_size"))
    heads_first = "_scaled_dot_product" in name
    assert ATTENTION[name] == Places(at["query"], causal, heads_first, lengths, window)
    assert (at["key"], at["value"]) == (at["query"] + 1, at["query"] + 2)
