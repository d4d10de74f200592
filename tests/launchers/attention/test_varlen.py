"""Attention within records by torch's kernel for varying lengths, in versions with and without grouped heads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from llmexp.launchers.attention import varlen
from llmexp.launchers.attention.causal import flash
from llmexp.launchers.data.packing import LENGTHS

LENGTHS_OF_RECORDS = (5, 11)


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
    """What torch's kernel computes; heads of keys and queries have to be as many."""
    assert key.shape == query.shape
    parts = [part.transpose(0, 1).unsqueeze(0).split(list(LENGTHS_OF_RECORDS), dim=2) for part in (query, key, value)]
    return torch.cat([flash(q, k, v, scale).squeeze(0).transpose(0, 1) for q, k, v in zip(*parts, strict=True)])


def without_grouped_heads(
    query: Tensor, key: Tensor, value: Tensor, *bounds: Any, scale: float | None = None, window_size: Any = (-1, -1)
) -> Tensor:
    assert window_size == (-1, 0)
    return attend(query, key, value, scale)


def with_grouped_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *bounds: Any,
    scale: float | None = None,
    window_size: Any = (-1, -1),
    enable_gqa: bool = False,
) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    assert enable_gqa == (groups > 1)
    key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    return without_grouped_heads(query, key, value, scale=scale, window_size=window_size)


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    varlen._varying.cache_clear()
    yield
    varlen._varying.cache_clear()


@pytest.mark.parametrize("kernel", [without_grouped_heads, with_grouped_heads])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_grouped_heads_reach_a_kernel_of_either_kind(
    monkeypatch: pytest.MonkeyPatch, kernel: Any, kv_heads: int
) -> None:
    module = ModuleType("torch.nn.attention.varlen")
    module.varlen_attn = kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
    torch.manual_seed(0)
    tokens = sum(LENGTHS_OF_RECORDS)
    query, key, value = torch.randn(tokens, 4, 16), *torch.randn(2, tokens, kv_heads, 16).unbind()
    options = {"cu_seq_lens_q": None, "max_length_q": None, "scaling": 0.3, LENGTHS: LENGTHS_OF_RECORDS}
    within = varlen._varying(torch.device("cuda"))
    assert within
    found = within(query, key, value, options=options)
    torch.testing.assert_close(found, varlen._one_by_one(query, key, value, options=options))


def test_a_kernel_that_is_not_causal_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.nn.attention.varlen")
    module.varlen_attn = lambda query, key, value: query  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
    assert varlen._varying(torch.device("cuda")) is None
