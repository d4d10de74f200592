"""What the modules of each family of transformers keep for backward that its sizes do not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KeptByFamily:
    """What the modules of a family keep for backward that its sizes do not say."""

    gains_in_fp32: bool = False
    """Norms multiply with their gain before they return to the parameters' dtype."""
    joins_rotated: bool = False
    """Queries are joined of parts, so that fused attention returns a layout that is copied."""
    values_in_fused: bool = False
    """Values are a view of one product that has queries and keys too, which all stays."""
    router_in_fp32: bool = False
    """The router multiplies copies of its input and of its weights."""
    weights_in_fp32: bool = False
    """The results of experts are weighted in fp32."""
    expert_products: int = 4
    """Elements of an expert's width that it keeps for a token: gate, up, the activation and the product."""
    rotary_tables: int = 1
    """Tables of cosines and sines, as wide as a head."""
    rotary_in_fp32: bool = False
    """The tables are not in the parameters' dtype."""


FAMILIES: Mapping[str, KeptByFamily] = {
    "llama": KeptByFamily(),
    "mistral": KeptByFamily(),
    "qwen2": KeptByFamily(),
    "qwen3": KeptByFamily(),
    "phi3": KeptByFamily(joins_rotated=True, values_in_fused=True),
    "olmo2": KeptByFamily(gains_in_fp32=True, rotary_in_fp32=True),
    "olmo3": KeptByFamily(gains_in_fp32=True, rotary_tables=2, rotary_in_fp32=True),
    "gemma3_text": KeptByFamily(gains_in_fp32=True, rotary_tables=2),
    "mixtral": KeptByFamily(weights_in_fp32=True),
    "qwen3_moe": KeptByFamily(),
    # Clamps gate and up, and adds 1 to up.
    "gpt_oss": KeptByFamily(gains_in_fp32=True, expert_products=7),
    "glm4_moe": KeptByFamily(joins_rotated=True, router_in_fp32=True, weights_in_fp32=True),
    "deepseek_v3": KeptByFamily(router_in_fp32=True, weights_in_fp32=True),
    "qwen3_next": KeptByFamily(gains_in_fp32=True, joins_rotated=True),
    "mamba2": KeptByFamily(),
}
