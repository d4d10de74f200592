"""Maps the stacks of experts that transformers makes to the single matrices that checkpoints store."""

from __future__ import annotations

import re
from collections.abc import Container

_STACK = re.compile(r"(.+)\.mlp\.experts\.(gate_up_proj|down_proj)")
# The names of an expert's matrices by the name of its layer: Mixtral's checkpoints first, then those like Qwen's.
_NAMES = {
    "block_sparse_moe": {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)},
    "mlp": {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)},
}


def matrices_of(name: str, experts: int, stored: Container[str]) -> list[tuple[str, ...]]:
    """Return, for each expert of a stack, the stored matrices, whose rows follow each other in the stack.

    Returns an empty list where this is no stack, or where they are not stored.
    """
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
    """Return Mixtral's own name for the matrix that chooses experts; other names stay."""
    return name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
