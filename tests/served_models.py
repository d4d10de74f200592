"""Small models for tests of servers: a dense one and one with experts, of the same sizes."""

from __future__ import annotations

from typing import Any

from llmexp.schema import DenseModel, MixtralModel

_SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_layers": 4,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 32,
    "max_positions": 4096,
}


def small_models(**other_sizes: int) -> tuple[DenseModel, MixtralModel]:
    sizes = _SIZES | other_sizes
    return (
        DenseModel(name="dense", architecture="llama", **sizes),
        MixtralModel(name="mixture", architecture="mixtral", num_experts=4, experts_per_token=2, **sizes),
    )
