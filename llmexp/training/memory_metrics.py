"""Memory metrics, in bytes, of the largest rank unless named rank0.

Training state on the device and training state on the host are separate metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from llmexp.analysis.metric import Function, Metrics, MetricSpec
from llmexp.analysis.quantity import Measurement
from llmexp.training.repeats import RunConstants, TrainingRepeat

PHASES = ("forward", "backward", "optimizer")
# A rank that gathers no parameters has counted this kind instead.
OTHERWISE = {"gradients_and_gathered": "gradients"}
Place = Literal["device", "host", "disk"]
_PLACES: dict[Place, str] = {"device": "", "host": "_host"}


def peak_allocated_rank0_bytes(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Return the peak of torch's allocator on rank 0; None on cpu."""
    peak = repeat.ranks[0].peak_allocated_bytes
    return None if peak is None else Measurement(peak)


def _peak(repeat: TrainingRepeat, facts: RunConstants, field: str) -> Measurement | None:
    peaks = [getattr(rank, field) for rank in repeat.ranks]
    return None if None in peaks else Measurement(max(peaks))


def _phase_peak(repeat: TrainingRepeat, facts: RunConstants, phase: str) -> Measurement | None:
    peaks = [rank.phase_peak_bytes.get(phase) for rank in repeat.ranks]
    return Measurement(max(known)) if len(known := [peak for peak in peaks if peak is not None]) == len(peaks) else None


def _state(repeat: TrainingRepeat, facts: RunConstants, kinds: Sequence[str], place: Place) -> Measurement | None:
    held = [
        [rank.state_bytes.get(kind) or rank.state_bytes.get(OTHERWISE.get(kind, kind)) for kind in kinds]
        for rank in repeat.ranks
    ]
    if any(None in sizes for sizes in held):
        return None
    return Measurement(max(sum(getattr(size, place) for size in sizes) for sizes in held))


def _in_files(repeat: TrainingRepeat, facts: RunConstants, kinds: Sequence[str]) -> Measurement | None:
    """Return the bytes in files; None where there are none."""
    found = _state(repeat, facts, kinds, "disk")
    return found if found and found.value else None


def optimizer_state_bytes_per_parameter(repeat: TrainingRepeat, facts: RunConstants) -> Measurement | None:
    """Return the largest rank's optimizer moments, wherever they are, per trained parameter of the whole model."""
    found = [(rank.state_bytes.get("moments"), rank.trainable_parameters) for rank in repeat.ranks]
    held = [
        (moments.device + moments.host + moments.disk) / trained for moments, trained in found if moments and trained
    ]
    return Measurement(max(held)) if len(held) == len(found) else None


_PEAKS = {
    "peak_allocated_bytes": "Peak of torch's allocator, on the largest rank; None on cpu.",
    "peak_reserved_bytes": (
        "Peak memory that torch's allocator had reserved on the device, on the largest rank; None on cpu."
    ),
    "peak_device_used_bytes": (
        "The device's own count of its memory in use, the largest reading of any rank; None on cpu."
    ),
    "peak_rss_bytes": "Peak of a rank's process in host memory, on the largest rank.",
}
_OF_ALLOCATOR = "Memory used only to build the model does not count."
_OF_DEVICE = (
    "Other processes' memory counts too. It is the largest of the readings at the ends of phases and of the window."
)
_OF_PHASES = (
    "`what_ran.peak_phase` names the highest. On CPU it names the phase where the process last grew; null if building "
    "the model took more."
)
_OF_STATES = (
    "The most in the first step: gradients at the end of a pass or as the optimizer begins an update, when copies in "
    "the master copy's dtype can exist beside them; the others after the update. ZeRO and offload show, also on CPU."
)
_OF_GATHERED = (
    "With FSDP2 only: all of them with Z2; embedding, last norm and head with Z3. Parameters that DeepSpeed's Z3 "
    "keeps gathered are only in the peaks."
)
_OF_FILES = "None without `memory.optimizer_folder`."
_OF_MOMENTS = (
    "8 for AdamW in fp32, and 8 / n if n ranks share them. A copy of the parameters to update does not count. The "
    "same name in `plan.json` is what the plan expects of one rank alone."
)
_STATES = {
    "parameter": (("parameters",), "Parameters, as partitioned"),
    "gradient": (("gradients",), "Gradients"),
    "optimizer": (("optimizer",), "The optimizer's state, a master copy included"),
    "training_state": (
        ("parameters", "gradients_and_gathered", "optimizer"),
        "Parameters, gradients and optimizer state",
    ),
}


def add_memory(metrics: Metrics) -> None:
    """Register the memory metrics."""

    def add(name: str, function: Function, help: str, details: str = "") -> None:
        metrics.include(MetricSpec(name, function, "B", "lower", help, details=details))

    largest = "of the largest rank"
    per_parameter = (
        "Bytes of moments on the fullest rank, wherever they are, over the trained parameters of the whole model."
    )
    add("optimizer_state_bytes_per_parameter", optimizer_state_bytes_per_parameter, per_parameter, _OF_MOMENTS)
    for name, help in _PEAKS.items():
        details = {"peak_allocated_bytes": _OF_ALLOCATOR, "peak_device_used_bytes": _OF_DEVICE}.get(name, "")
        add(name, partial(_peak, field=name), help, details)
    add("peak_allocated_rank0_bytes", peak_allocated_rank0_bytes, "Peak of torch's allocator on rank 0; None on cpu.")
    for phase in PHASES:
        help = (
            f"Peak of torch's allocator in the phase {phase}, over the warm-up from its second step, "
            f"{largest}; None on cpu."
        )
        add(f"{phase}_peak_bytes", partial(_phase_peak, phase=phase), help, _OF_PHASES)
    for name, (kinds, what) in _STATES.items():
        for place, suffix in _PLACES.items():
            add(
                f"{name}{suffix}_bytes",
                partial(_state, kinds=kinds, place=place),
                f"{what}, on the {place}, {largest}.",
                _OF_STATES,
            )
    for name in ("optimizer", "gradient"):
        kinds, what = _STATES[name]
        add(
            f"{name}_disk_bytes",
            partial(_in_files, kinds=kinds),
            f"{what}, in files, {largest}.",
            f"{_OF_FILES} Gradients are there from their pass to the update.",
        )
    buffers = f"Buffers in host memory through which states pass from and to files, {largest}."
    add("swap_buffer_bytes", partial(_state, kinds=("swap_buffers",), place="host"), buffers, _OF_FILES)
    gathered = f"Whole parameters at the end of forward, beside the rank's part of them, on the device, {largest}."
    add("gathered_parameter_bytes", partial(_state, kinds=("gathered",), place="device"), gathered, _OF_GATHERED)
