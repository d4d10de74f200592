"""Gathers whole parameters of a model that ranks hold in parts, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor


@contextmanager
def whole(parameters: Sequence[nn.Parameter], device: torch.device) -> Iterator[list[torch.Tensor]]:
    """Give every rank all of these parameters inside the context, which all ranks enter together.

    Partitioned ones are gathered on `device`.
    """
    if any(hasattr(parameter, "ds_id") for parameter in parameters):
        import deepspeed  # ZeRO-3 is what has made them so

        with deepspeed.zero.GatheredParameters(list(parameters)):
            yield [parameter.data for parameter in parameters]
    else:
        yield [_whole(parameter.detach(), device) for parameter in parameters]


def _whole(held: torch.Tensor, device: torch.device) -> torch.Tensor:
    if not isinstance(held, DTensor):
        return held
    part: Any = held.to(device)  # still a DTensor
    gathered: torch.Tensor = part.full_tensor()
    return gathered
