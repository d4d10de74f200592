"""The sizes of the Llama that tests of compression train, and the type of what plans them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmexp.compress.plan import CompressPlan

MakePlan = Callable[..., CompressPlan]
SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
