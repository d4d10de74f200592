"""The split with the most tokens/s: every batch and block, and every share of the device, in steps.

No solver is needed. What leaves the device fills the host's memory before the disk, and a byte on the disk costs the
same whether it is of weights or of the cache. So two shares decide all six.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmexp.serving.advice.offload.machine import OffloadedModel, OffloadMachine
from llmexp.serving.advice.offload.placement import (
    OfflineRequests,
    OffloadPlacement,
    OffloadTime,
    TierShares,
    block_time,
    fits,
    held_by,
)

_BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
# Shares of the device, in steps of a twentieth.
_STEPS = 20


@dataclass(frozen=True)
class SimulatedSplit:
    """The best placement with its time."""

    placement: OffloadPlacement
    time: OffloadTime


def best_split(
    machine: OffloadMachine, model: OffloadedModel, asked: OfflineRequests, most_requests: int
) -> SimulatedSplit | None:
    """Return the fastest split of those that fit, with at most so many requests in a block; None where none fits."""
    found = (
        SimulatedSplit(placement, block_time(machine, model, asked, placement))
        for batch, batches in _blocks(most_requests)
        for placement in _placements(machine, model, asked, batch, batches)
    )
    return max(found, key=lambda split: split.time.tokens_per_s, default=None)


def _blocks(most: int) -> Iterator[tuple[int, int]]:
    return ((batch, batches) for batch in _BATCHES for batches in _BLOCKS if batch * batches <= most)


def _placements(
    machine: OffloadMachine, model: OffloadedModel, asked: OfflineRequests, batch: int, batches: int
) -> Iterator[OffloadPlacement]:
    """Yield the placements of a block whose shares of the device have room, the rest below."""
    for of_weights in range(_STEPS + 1):
        for of_cache in range(_STEPS + 1):
            devices = (of_weights / _STEPS, of_cache / _STEPS)
            placement = _filled(machine, model, asked, devices, (batch, batches))
            if placement is None:
                break
            if fits(machine, model, asked, placement):
                yield placement
                if of_cache < _STEPS:
                    yield OffloadPlacement(placement.weights, placement.cache, batch, batches, attends_on_host=False)


def _filled(
    machine: OffloadMachine,
    model: OffloadedModel,
    asked: OfflineRequests,
    devices: tuple[float, float],
    block: tuple[int, int],
) -> OffloadPlacement | None:
    """Return the placement with these shares of the device; weights come before the cache into the host's memory.

    None where the device has no room.
    """
    on_device = OffloadPlacement(TierShares(devices[0], 1 - devices[0]), TierShares(devices[1], 1 - devices[1]), *block)
    held, _, _ = held_by(model, asked, on_device)
    if held > machine.device_bytes:
        return None
    empty = OffloadPlacement(TierShares(devices[0], 0.0), TierShares(devices[1], 0.0), *block)
    room = machine.host_bytes - held_by(model, asked, empty)[1]
    all_weights = model.layers * model.weights
    weights = _share(room, all_weights, 1 - devices[0])
    kept = model.layers * model.kept_per_token * (asked.prompt + asked.output) * on_device.requests
    cache = _share(room - weights * all_weights, kept, 1 - devices[1])
    return OffloadPlacement(TierShares(devices[0], weights), TierShares(devices[1], cache), *block)


def _share(room: float, whole: float, most: float) -> float:
    """Return the share of something that a room takes."""
    return min(max(room, 0.0) / whole, most)
