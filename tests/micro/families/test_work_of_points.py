"""The work of a point, worked out by hand."""

from __future__ import annotations

import pytest

from llmexp.micro.families.base import MicroPoint
from llmexp.registry import get_family

HEADS = {"batch": 2, "heads": 4, "kv_heads": 2, "seq_len": 10, "head_dim": 8}


def point(family: str, kind: str, dtype: str = "", **sizes: int) -> MicroPoint:
    return MicroPoint(family=family, kind=kind, dtype=dtype, sizes=sizes)


def flops(of: MicroPoint) -> float | None:
    return get_family(of.family).flops(of)


def test_a_product_has_a_multiplication_and_an_addition_for_each_pair() -> None:
    assert flops(point("gemm", "gemm", "bf16", m=666, n=11008, k=4096)) == 2 * 666 * 11008 * 4096


def test_causal_attention_counts_half_of_its_two_products_and_backward_what_its_kernel_computes() -> None:
    # Two products of 10 x 10 scores in 4 heads of 8, for 2 sequences, of which half are seen.
    forward = 2 * (2 * 10 * 10 * 8) * 4 * 2 / 2
    assert flops(point("attention", "unfused_forward", "fp32", **HEADS)) == forward
    assert flops(point("attention", "unfused_backward", "fp32", **HEADS)) == 2 * forward
    assert flops(point("attention", "flash_backward", "fp32", **HEADS)) == 2.5 * forward


@pytest.mark.parametrize(
    ("of", "moved"),
    [
        (point("memory", "triad", bytes=100), 300),
        (point("copies", "device_to_device", bytes=100), 100),
        (point("disk", "read", bytes=100), 100),
        (point("optimizer", "adamw_on_device", "fp32", parameters=10), 280),
        (point("operators", "rms_norm", "bf16", tokens=10, hidden=8), 2 * 2 * 80),
        (point("operators", "rope", "fp32", tokens=10, heads=4, kv_heads=2, head_dim=8), 4 * 2 * 10 * 6 * 8),
        (point("operators", "softmax", "fp32", tokens=10, heads=4), 4 * 2 * 400),
        (point("operators", "cross_entropy", "bf16", tokens=10, vocab=100), 2 * 1000),
    ],
)
def test_what_has_to_be_moved_is_read_and_written_once(of: MicroPoint, moved: int) -> None:
    assert get_family(of.family).bytes_moved(of) == moved
    assert flops(of) is None
