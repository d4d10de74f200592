"""The formats of numbers as torch has them."""

from __future__ import annotations

import torch

from llmexp.dtypes import format_of


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's dtype for the name of a format, such as torch.float32 for fp32."""
    found: torch.dtype = getattr(torch, format_of(name).torch)
    return found
