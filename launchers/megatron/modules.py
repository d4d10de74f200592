"""Modules that megatron-core has only with TransformerEngine or Apex.

They are RMSNorm under sequence parallelism, and fused attention.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils
from torch import nn

from llmexp.launchers.attention.causal import flash

# Megatron's router asks whether TransformerEngine's product is None.
# Without TransformerEngine the name is not defined (0.15, 0.16.1).
if not hasattr(moe_utils, "te_general_gemm"):
    moe_utils.te_general_gemm = None


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm for Megatron.

    Under sequence parallelism it marks its gain, so that the gradient is summed over the tensor-parallel ranks.
    """

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps, device=torch.cuda.current_device(), dtype=config.params_dtype)
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)  # noqa: B010


class FlashAttention(nn.Module):
    """Atom F: causal attention by torch's flash kernel only.

    It raises RuntimeError where that kernel cannot take the inputs.
    """

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: Any) -> None:
        super().__init__()
        self._scale = softmax_scale

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: None, **_: Any
    ) -> torch.Tensor:
        """Compute attention; the result is [seq, batch, heads x head_dim].

        query is [seq, batch, heads, head_dim], key and value are [seq, batch, kv_heads, head_dim].
        """
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        return flash(query, key, value, self._scale).permute(2, 0, 1, 3).flatten(2)
