"""The optimizer's step on the device or on the host, and files past the page cache, as offloaded states need both."""

from __future__ import annotations

import mmap
import os
from functools import partial

import torch

from llmexp.launchers.micro.case import Case, Place, differs
from llmexp.plan.micro_plan import MicroPoint

# Direct input and output want addresses and sizes that are multiples of a block.
BLOCK_BYTES = 4096


def adamw(point: MicroPoint, place: Place) -> Case:
    """Take a step of torch's fused AdamW on fp32 parameters, gradients and moments."""
    device = place.device if point.kind == "adamw_on_device" else torch.device("cpu")
    parameter = torch.nn.Parameter(torch.randn(point.sizes["parameters"], device=device))
    parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.0, fused=True)

    def wrong() -> str:
        before = parameter.detach()[:1000].clone()
        optimizer.step()
        # The first step of Adam is lr in the direction against the gradient, whatever its size.
        wanted = before - 1e-3 * parameter.grad[:1000].sign() if parameter.grad is not None else before
        return differs(parameter.detach()[:1000] - before, wanted - before, 1e-2)

    return Case([optimizer.step], wrong, "fused")


def disk(point: MicroPoint, place: Place) -> Case:
    """Write or read a file of random bytes past the page cache; raises OSError where the filesystem cannot."""
    size = -(-point.sizes["bytes"] // BLOCK_BYTES) * BLOCK_BYTES
    path = place.folder / f"micro.{place.rank}.tmp"
    memory = mmap.mmap(-1, size)  # its address is a multiple of a page
    memory.write(os.urandom(min(size, 2**20)) * -(-size // 2**20) if size >= 2**20 else os.urandom(size))
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    # Nobody else needs the file, and a rank that is killed leaves nothing behind.
    path.unlink()
    _write(file, memory)

    def wrong() -> str:
        found = mmap.mmap(-1, size)
        _read(file, found)
        return "" if found[:] == memory[:] else "the file holds other bytes than were written"

    return Case([partial(_write if point.kind == "write" else _read, file, memory)], wrong, "O_DIRECT")


def _write(file: int, memory: mmap.mmap) -> None:
    if os.pwritev(file, [memory], 0) != len(memory):
        raise OSError("the disk took only a part of the file")
    os.fdatasync(file)


def _read(file: int, memory: mmap.mmap) -> None:
    if os.preadv(file, [memory], 0) != len(memory):
        raise OSError("the disk gave only a part of the file")
