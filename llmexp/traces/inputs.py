"""What the operators of a trace were called with, as far as their floating-point operations follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from llmexp.dtypes import by_trace

# Operators that multiply matrices, and those of attention in one kernel, with the places of their inputs.
_ATEN = ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_grouped_mm", "linear")
PRODUCTS = frozenset((*(f"aten::{name}" for name in _ATEN), "mkldnn::_linear_pointwise", "mkl::_mkl_linear"))


@dataclass(frozen=True)
class Places:
    """The places of an attention operator's inputs.

    Keys and values follow the query. `lengths` are the ends of packed sequences. `heads_first` are tensors of [batch,
    heads, tokens, dimension], others have tokens first. A causal mask is aligned at the first key, or with `at_end` at
    the last one. `window` is how far back a query attends.
    """

    query: int
    causal: int
    heads_first: bool = True
    lengths: int | None = None
    window: int | None = None
    at_end: bool = False

    @property
    def backward(self) -> bool:
        """Tell whether the operator computes gradients: that of the result is the first input."""
        return self.query == 1


_SDPA, _FLASH = "aten::_scaled_dot_product", "flash_attn::_flash_attn"
ATTENTION = {
    f"{_SDPA}_flash_attention": Places(0, 4),
    f"{_SDPA}_flash_attention_backward": Places(1, 11),
    f"{_SDPA}_flash_attention_for_cpu": Places(0, 4),
    f"{_SDPA}_flash_attention_for_cpu_backward": Places(1, 7),
    f"{_SDPA}_efficient_attention": Places(0, 6),
    f"{_SDPA}_efficient_attention_backward": Places(1, 11),
    f"{_SDPA}_cudnn_attention": Places(0, 6),
    f"{_SDPA}_cudnn_attention_backward": Places(1, 14),
    f"{_SDPA}_fused_attention_overrideable": Places(0, 5),
    f"{_SDPA}_fused_attention_overrideable_backward": Places(1, 13),
    "aten::_flash_attention_forward": Places(0, 8, heads_first=False, lengths=3, window=11),
    "aten::_flash_attention_backward": Places(1, 11, heads_first=False, lengths=6, window=15),
    "aten::_efficient_attention_forward": Places(0, 9, heads_first=False, lengths=4, window=13),
    "aten::_efficient_attention_backward": Places(1, 14, heads_first=False, lengths=6, window=18),
    f"{_FLASH}_forward": Places(0, 5, heads_first=False, window=6, at_end=True),
    f"{_FLASH}_backward": Places(1, 11, heads_first=False, window=12, at_end=True),
    f"{_FLASH}_varlen_forward": Places(0, 9, heads_first=False, lengths=3, window=10, at_end=True),
    f"{_FLASH}_varlen_backward": Places(1, 15, heads_first=False, lengths=9, window=16, at_end=True),
}
SHAPED = PRODUCTS | frozenset(ATTENTION)
Raw = tuple[bytes, bytes, bytes]
# What is larger was written by no profiler, and its products are no numbers of a computer.
MOST_DIMENSIONS, LARGEST_SIZE = 8, 2**40


@dataclass(frozen=True)
class Inputs:
    """The inputs of a call: shapes of tensors, names of their types, and other values as text; empty where unknown."""

    shapes: list[Any]
    types: list[Any]
    values: list[Any]

    @classmethod
    def of(cls, raw: Raw) -> Inputs:
        """Parse what a trace has as three JSON lists; what is no list counts as unknown."""
        return cls(*map(_list, raw))

    def shape(self, place: int) -> list[int]:
        """Return a tensor's shape; raises ValueError, TypeError or IndexError where there is none."""
        sizes = [int(size) for size in self.shapes[place]]
        if not 0 < len(sizes) <= MOST_DIMENSIONS or min(sizes) < 0 or max(sizes) > LARGEST_SIZE:
            raise ValueError(f"{sizes} is no shape")
        return sizes

    def dtype(self, place: int) -> str:
        """Return a tensor's dtype by its name in a configuration, or an empty text."""
        return by_trace().get(str(self.types[place]), "") if place < len(self.types) else ""

    def value(self, place: int | None) -> str:
        """Return the text of an input that is no tensor, or an empty text."""
        return str(self.values[place]) if place is not None and place < len(self.values) else ""


def _list(raw: bytes) -> list[Any]:
    try:
        return msgspec.json.decode(raw, type=list[Any])
    except (ValueError, msgspec.DecodeError, RecursionError):  # msgspec 0.19's are no ValueErrors
        return []
