"""Binds a rank to the cores beside its GPU, so that its memory and its launches cross no other processor."""

from __future__ import annotations

import torch

from llmexp.launchers.rank.frame import gpu_uuid
from llmexp.machine.accelerators import here
from llmexp.machine.processor import bind_to, bound_core_numbers

_bound: dict[str, int] = {}


def bind_beside(device: torch.device) -> None:
    """Bind this process to those of its cores that are in its GPU's NUMA node.

    Where they are fewer than its threads, or the node is not known, the binding stays as it is.
    """
    _bound.clear()
    if device.type != "cuda" or bound_core_numbers() is None:
        return
    board = here.board(gpu_uuid(device) or "")
    local, own = (board.local_cores() if board else set()), bound_core_numbers() or set()
    if len(local & own) >= torch.get_num_threads():
        bind_to(own := local & own)
    _bound.update(bound_cores=len(own), bound_cores_beside_gpu=len(own & local))


def binding() -> dict[str, int]:
    """Return the number of cores that this rank is bound to, and how many of them are beside its GPU."""
    return dict(_bound)
