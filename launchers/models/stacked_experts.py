"""Experts as checkpoints hold them, a matrix each, under the names of the stacks that transformers makes of them."""

from __future__ import annotations

import re
from collections.abc import Container

_STACK = re.compile(r"(.+)\.mlp\.experts\.(gate_up_proj|down_proj)")
# How an expert's matrices are called, where its layer is called so: Mixtral's checkpoints, and those of Qwen's kind.
_NAMES = {
    "block_sparse_moe": {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)},
    "mlp": {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)},
}


def matrices_of(name: str, experts: int, stored: Container[str]) -> list[tuple[str, ...]]:
    """Of each expert of a stack the stored matrices, whose rows follow each other in it; none where this is no stack or they are not stored."""
    found = _STACK.fullmatch(name)
    if not found:
        return []
    for layer, leaves in _NAMES.items():
        each = [
            tuple(f"{found[1]}.{layer}.experts.{expert}.{leaf}.weight" for leaf in leaves[found[2]])
            for expert in range(experts)
        ]
        if all(matrix in stored for matrices in each for matrix in matrices):
            return each
    return []


def router_of(name: str) -> str:
    """Mixtral's own name of the matrix that chooses experts; others stay."""
    return name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
