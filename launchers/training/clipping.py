"""Clipping of gradients by the norm of the whole model's, whatever part of it a rank holds."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import distributed

from llmexp.launchers.training.optimizer_state import copies, local

# Of torch's clip_grad_norm_, against a norm of 0.
_EPSILON = 1e-6


def clip(gradients: Iterable[torch.Tensor], norm: torch.Tensor, largest: float) -> None:
    """Scale gradients, the norm of which is `norm`, so that their norm is at most `largest`."""
    torch._foreach_mul_(list(map(local, gradients)), kept_share(norm, largest))


def gradients_of(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients that there are."""
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def norm_of(
    gradients: Iterable[torch.Tensor], holders: distributed.ProcessGroup | None, among: int | None = None
) -> torch.Tensor:
    """Return the norm of all gradients, in fp32 or wider.

    The ranks of `holders` hold different parameters or parts of them; None: each rank holds all. `among` is as in
    `copies`: how many of them have the same parameters, or parts of them.
    """
    # What several ranks hold is summed over them once.
    squares = torch.stack([_norm(local(gradient)).square() / copies(gradient, among) for gradient in gradients]).sum()
    if holders is not None:
        on_device = squares.to("cuda") if distributed.get_backend(holders) == "nccl" else squares
        distributed.all_reduce(on_device, group=holders)
        squares = on_device.to(squares.device)
    return squares.sqrt()


def kept_share(norm: torch.Tensor, largest: float) -> torch.Tensor:
    """Return what gradients of this norm are multiplied by."""
    return (largest / (norm + _EPSILON)).clamp(max=1.0)


def _norm(gradient: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
