"""Sets the smallest weights of each matrix to zero, whatever they multiply."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from llmexp.compress.config import Sparsify


@torch.no_grad()
def zero_smallest(matrices: Iterable[torch.Tensor], compress: Sparsify) -> None:
    """Zero the configured share of each matrix, or two of each four neighbors of a row."""
    for matrix in matrices:
        rows = matrix.view(-1, 4) if compress.pattern == "2:4" else matrix.view(1, -1)
        count = 2 if compress.pattern == "2:4" else round(rows.shape[1] * compress.sparsity)
        smallest = rows.abs().topk(count, dim=1, largest=False).indices
        rows.scatter_(1, smallest, 0)
