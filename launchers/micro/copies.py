"""Copies between host and device, from pinned or pageable memory, and on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from llmexp.launchers.micro.case import Case, CasePlace
from llmexp.micro.families.base import MicroPoint

ON_DEVICE = "device_to_device"


def copy(point: MicroPoint, place: CasePlace) -> Case:
    """Copy so many bytes from one place to another."""
    size = point.sizes["bytes"]
    pinned = point.kind.endswith("_pinned")

    def on_device() -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=place.device).random_()

    def on_host() -> Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=pinned).random_()

    places: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
        "host_to_device": (on_device, on_host),
        "device_to_host": (on_host, on_device),
        ON_DEVICE: (on_device, on_device),
    }
    into, source = next(makers for name, makers in places.items() if point.kind.startswith(name))
    sets = place.sets(lambda: (into(), source()), 2 * size)

    def wrong() -> str:
        target, values = sets[0]
        target.copy_(values)
        return "" if torch.equal(target.cpu(), values.cpu()) else "the copy differs from what was copied"

    return Case([partial(target.copy_, values, non_blocking=pinned) for target, values in sets], wrong)
