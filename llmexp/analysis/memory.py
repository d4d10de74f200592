"""Memory metrics, in bytes: of the largest rank unless named rank0; training state apart by where it lies, on the device or on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from llmexp.analysis.quantity import Facts, Function, Observed
from llmexp.analysis.window import Repeat

PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_used_bytes", "peak_rss_bytes")
PHASES = ("forward", "backward", "optimizer")
STATES = {
    "parameter": ("parameters",),
    "gradient": ("gradients",),
    "optimizer": ("optimizer",),
    "training_state": ("parameters", "gradients_and_gathered", "optimizer"),
}
# What a rank that gathers no parameters has counted in the place of a kind.
OTHERWISE = {"gradients_and_gathered": "gradients"}
Place = Literal["device", "host"]


def peak_allocated_rank0_bytes(repeat: Repeat, facts: Facts) -> Observed | None:
    """Peak of torch's allocator on rank 0; None on cpu."""
    peak = repeat.ranks[0].peak_allocated_bytes
    return None if peak is None else Observed(peak)


def _peak(repeat: Repeat, facts: Facts, field: str) -> Observed | None:
    peaks = [getattr(rank, field) for rank in repeat.ranks]
    return None if None in peaks else Observed(max(peaks))


def _phase_peak(repeat: Repeat, facts: Facts, phase: str) -> Observed | None:
    peaks = [rank.phase_peak_bytes.get(phase) for rank in repeat.ranks]
    return Observed(max(known)) if len(known := [peak for peak in peaks if peak is not None]) == len(peaks) else None


def _state(repeat: Repeat, facts: Facts, kinds: Sequence[str], place: Place) -> Observed | None:
    held = [[rank.state_bytes.get(kind) or rank.state_bytes.get(OTHERWISE.get(kind, kind)) for kind in kinds] for rank in repeat.ranks]
    if any(None in sizes for sizes in held):
        return None
    return Observed(max(sum(getattr(size, place) for size in sizes) for sizes in held))


def optimizer_state_bytes_per_parameter(repeat: Repeat, facts: Facts) -> Observed | None:
    """Moments that the fullest rank holds, wherever, over the trained parameters of the whole model."""
    found = [(rank.state_bytes.get("moments"), rank.trainable_parameters) for rank in repeat.ranks]
    held = [(moments.device + moments.host) / trained for moments, trained in found if moments and trained]
    return Observed(max(held)) if len(held) == len(found) else None


MEMORY: dict[str, Function] = {
    "optimizer_state_bytes_per_parameter": optimizer_state_bytes_per_parameter,
    **{field: partial(_peak, field=field) for field in PEAKS},
    "peak_allocated_rank0_bytes": peak_allocated_rank0_bytes,
    **{f"{phase}_peak_bytes": partial(_phase_peak, phase=phase) for phase in PHASES},
    **{f"{name}_bytes": partial(_state, kinds=kinds, place="device") for name, kinds in STATES.items()},
    "gathered_parameter_bytes": partial(_state, kinds=("gathered",), place="device"),
    **{f"{name}_host_bytes": partial(_state, kinds=kinds, place="host") for name, kinds in STATES.items()},
}
