"""The tensors that a torch optimizer holds besides the model's own parameters."""

from __future__ import annotations

from collections.abc import Container, Iterable
from math import prod, sqrt
from typing import Any

import torch
from torch import distributed, nn

_PRECONDITIONERS = "GG"


def not_of(module: nn.Module, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that are copies, not the module's own memory."""
    own = {parameter.untyped_storage().data_ptr() for parameter in map(local, module.parameters())}
    return [tensor for tensor in map(local, tensors) if tensor.untyped_storage().data_ptr() not in own]


def moments(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the state tensors without step counts."""
    # AdaLOMO of pytorch_optimizer keeps its own state beside torch's.
    beside = [getattr(optimizer, name, {}) for name in ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col")]
    states = [*optimizer.state.values(), *beside]
    # SOAP of pytorch_optimizer keeps lists, with one tensor for each side.
    values = [
        each for state in states for value in state.values() for each in (value if type(value) is list else [value])
    ]
    return [local(value) for value in values if torch.is_tensor(value) and value.dim() > 0]


def first_gradient_norm(
    optimizer: torch.optim.Optimizer,
    trainable_parameters: int,
    among: int | None = None,
    repeated: Container[int] = (),
) -> float | None:
    """Compute the norm of the whole model's gradient in the only step so far of an Adam-like optimizer.

    It is None for other optimizers. It is computed from the first moments (arXiv 1412.6980). All ranks have to call it,
    each with its part. Each parameter counts once, or all count as often. Ids in `repeated` are left out; `among` is as
    in `copies`.
    """
    squares, elements = 0.0, 0.0
    for parameter, state in optimizer.state.items():
        if id(parameter) in repeated:
            continue
        first, second = state.get("exp_avg"), state.get("exp_avg_sq")
        if not (torch.is_tensor(first) and torch.is_tensor(second) and first.is_floating_point()):
            return None
        if _PRECONDITIONERS in state:  # SOAP's first step only begins them, and leaves the moments at 0
            return None
        values = local(first)
        wide = torch.promote_types(values.dtype, torch.float32)
        norm, held_by = torch.linalg.vector_norm(values, dtype=wide).item(), copies(first, among)
        squares += (norm / (1 - optimizer.param_groups[0]["betas"][0])) ** 2 / held_by
        elements += values.numel() / held_by
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    whole = torch.tensor([squares, elements], dtype=torch.float64, device=device)
    distributed.all_reduce(whole)
    squares, held = whole.tolist()
    return sqrt(squares / held * trainable_parameters) if held else None


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, partitioned or not."""
    part: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return part.detach()


def copies(tensor: torch.Tensor, among: int | None = None) -> int:
    """Return how many of `among` ranks hold the same part of a tensor that they all have, or have parts of.

    None: those of a DTensor's own mesh, and a single one of any other tensor.
    """
    placements: Any = getattr(tensor, "placements", None)
    if placements is None:
        return among or 1
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    parts = prod(mesh.size(axis) for axis, kind in enumerate(placements) if not kind.is_replicate())
    return int((among or mesh.size()) // parts)
