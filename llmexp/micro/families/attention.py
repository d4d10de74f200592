"""Causal attention.

The lower half of the scores counts, 4 FLOPs for each score and element of a head forward, and in backward 2.5 times
that by a fused kernel (it computes the scores again, arXiv 2307.08691, section 4.1) and twice that in three steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from llmexp.dtypes import format_of
from llmexp.errors import ConfigError
from llmexp.micro.families.base import Family, Limit, MicroPoint, Setting
from llmexp.schema.section import PositiveInt, Section, Sizes, Tuple

AttentionKernel = Literal["unfused", "flash", "fa2", "cudnn", "fa3", "fa4"]
WORDS: dict[AttentionKernel, str] = {
    "flash": "the fused kernel that torch prefers",
    "unfused": "attention in three steps",
    "fa2": "FlashAttention-2",
    "cudnn": "cuDNN's attention",
    "fa3": "FlashAttention-3",
    "fa4": "FlashAttention-4",
}
WAYS = ("forward", "backward")
UNFUSED_BACKWARD, FUSED_BACKWARD = 2.0, 2.5


class AttentionPoints(Section):
    """Causal attention with the model's heads, forward and backward."""

    kernels: Annotated[tuple[AttentionKernel, ...], Tuple] = Field(
        description="in three steps, by the fused kernel that torch prefers, or by one of kernels.flash (GPUs only)"
    )
    seq_lens: Sizes
    batch: PositiveInt = 1


class Attention(Family[AttentionPoints]):
    """Attention by each kernel, forward and backward."""

    name = "attention"
    keys = AttentionPoints
    case = "llmexp.launchers.micro.attention:attention"
    title = "causal attention"
    limits = tuple(
        Limit(
            f"attention_{kernel}_{way}_flops_per_s",
            f"{words}, {way}, the causal half counted",
            "flops_per_s",
            f"{kernel}_{way}",
        )
        for kernel, words in WORDS.items()
        for way in WAYS
    )
    without_model = "micro.attention=null"

    def points(self, wanted: AttentionPoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield each kernel at each length, both ways; raises ConfigError for a kernel that a CPU has not."""
        device = setting.hardware.device
        named = [kernel for kernel in wanted.kernels if kernel not in ("unfused", "flash")]
        if named and device == "cpu":
            raise ConfigError(f"micro.attention.kernels={','.join(named)}: on cpu there are unfused and flash")
        shape = setting.shape
        heads = {"batch": wanted.batch, "heads": shape.num_heads, "kv_heads": shape.num_kv_heads}
        for dtype, kernel, seq_len, way in product(setting.dtypes, wanted.kernels, wanted.seq_lens, WAYS):
            if kernel != "unfused" and device == "cuda" and not format_of(dtype).fused_attention:
                continue
            yield MicroPoint(
                family=self.name,
                kind=f"{kernel}_{way}",
                dtype=dtype,
                sizes=heads | {"seq_len": seq_len, "head_dim": shape.head_dim},
            )

    def flops(self, point: MicroPoint) -> float:
        """Return the FLOPs of the causal half."""
        kernel, _, way = point.kind.rpartition("_")
        sizes = point.sizes
        forward = 2.0 * sizes["batch"] * sizes["heads"] * sizes["seq_len"] ** 2 * sizes["head_dim"]
        backward = UNFUSED_BACKWARD if kernel == "unfused" else FUSED_BACKWARD
        return forward * (backward if way == "backward" else 1.0)

    def is_graphed(self, kind: str) -> bool:
        """Tell that forward is kernels alone; backward runs in the stream of its forward pass."""
        return kind.endswith("_forward")


ATTENTION = Attention()
