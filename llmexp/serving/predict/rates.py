"""The rates of a server's devices: peaks of the data sheet times shares, and what an iteration costs besides.

`constants.yaml` has the shares with their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from llmexp.schema import HardwareConfig

Loop = Literal["overlapped", "python", "lean"]
"""How an engine schedules iterations: in Python while the device computes the one before, in Python between them, or by
compiled code."""
LOOPS: Mapping[str, Loop] = {"vllm": "overlapped", "sglang": "overlapped", "lightllm": "python", "tgi": "python"}
"""Of the engines whose servers are predicted."""
CARRIED, DATA_SHEET = "measured kernels", "its data sheet"
# Products of these devices have an fp8 peak, twice that of bf16 by all their data sheets. Others compute in 16 bits
# with weights of 8.
_WITH_FP8 = ("sm_89", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")
_DTYPE = "bf16"
# As measured products of 1 to 8192 rows go from reading to computing.
_SHARP = 2.4
_SHARPEST = 256.0


@dataclass(frozen=True)
class Rates:
    """What an iteration is divided by, and what it costs besides; of one device."""

    flops_per_s: float
    """Of products of matrices with many rows."""
    weights_per_s: float
    """Bytes of weights that products of few rows read."""
    cache_per_s: float
    memory_per_s: float
    """Bytes of elementwise operations."""
    attention_per_s: float
    """FLOPs of attention over long prompts."""
    attention_half_length: float
    elementwise: float
    """How often an element of the hidden state is read or written in a layer."""
    prompt_elementwise: float
    """How much more often those of prompts are, whose operations nothing fuses outside graphs; cards share them."""
    layer_s: float
    """Of a layer's kernels besides what they read and compute."""
    eager_layer_s: float
    """Host time of a layer without graphs; 0 with them."""
    prompt_layer_s: float
    """The same in iterations that read prompts, whose many lengths no graph has."""
    prompt_expert_layer_s: float
    """What it is more with experts."""
    step_s: float
    """Of an iteration: scheduling, sampling, and sending tokens."""
    request_s: float
    """The same for each token that an iteration generates."""
    all_reduce_s: float
    link_per_s: float
    first_token_s: float
    """From a request's sending to its first iteration, and back."""
    sharp: float
    """How sharply the longer of reading weights and computing with them decides: infinity takes the longer."""


@cache
def constants() -> dict[str, Any]:
    """Return the fitted and carried numbers."""
    text = (files(__package__) / "constants.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def rates_of(
    hardware: HardwareConfig, weights: str, loop: Loop, cards: int, fitted: Mapping[str, float] | None = None
) -> Rates:
    """Return the rates of `cards` devices on one node with weights of that format under that loop, with graphs.

    `missing` has to have nothing to say of the hardware. `fitted` stands in the place of the fitted constants.
    """
    known, one = constants(), fitted or constants()["fitted"]
    own = known["typical"] | _carried(hardware)
    in_fp8 = weights == "fp8" and hardware.measured_as in _WITH_FP8
    share = _fp8_share(hardware, own) if in_fp8 else own["products_share"]
    memory = float(hardware.memory_bandwidth_bytes_per_s or 0.0) * own.get("bandwidth_share", 1.0)
    peak = float(hardware.peak_flops_per_s[_DTYPE])
    reading = one["memory_share"] * own.get(f"{weights}_reading", 1.0) * one.get(f"{weights}_memory", 1.0)
    return Rates(
        flops_per_s=peak * share * one["products"],
        weights_per_s=memory * min(reading, 1.0),
        cache_per_s=memory * min(one["cache_share"], 1.0),
        memory_per_s=memory,
        attention_per_s=peak * own["attention_share"],
        attention_half_length=own["attention_half_length"],
        elementwise=one["elementwise"],
        prompt_elementwise=0.0 if loop == "lean" else one["prompt_elementwise"],
        layer_s=one["layer_s"],
        eager_layer_s=0.0,
        prompt_layer_s=0.0 if loop == "lean" else one["prompt_layer_s"],
        prompt_expert_layer_s=0.0 if loop == "lean" else one["prompt_expert_layer_s"],
        step_s=one[f"{loop}_step_s"],
        request_s=one[f"{loop}_request_s"],
        all_reduce_s=one["all_reduce_s" if _is_switched(hardware) else "pcie_all_reduce_s"],
        link_per_s=_link(hardware, cards, one["link_share"]),
        first_token_s=one[f"{'lean' if loop == 'lean' else 'python'}_first_token_s"],
        sharp=_SHARP,
    )


def without_graphs(rates: Rates, fitted: Mapping[str, float] | None = None) -> Rates:
    """Return the same where the host starts each kernel of an iteration."""
    return replace(rates, eager_layer_s=(fitted or constants()["fitted"])["eager_layer_s"])


def peaks_of(hardware: HardwareConfig, weights: str, cards: int) -> Rates:
    """Return the rates of the data sheet itself, which nothing exceeds."""
    peak = float(hardware.peak_flops_per_s[_DTYPE])
    memory = float(hardware.memory_bandwidth_bytes_per_s or 0.0)
    # Some cards' clocks boost beyond the sheet's.
    boost = max(1.0, _carried(hardware).get("products_share", 1.0))
    return Rates(
        flops_per_s=boost * peak * (2 if weights == "fp8" and hardware.measured_as in _WITH_FP8 else 1),
        weights_per_s=memory,
        cache_per_s=memory,
        memory_per_s=memory,
        attention_per_s=peak,
        attention_half_length=0.0,
        elementwise=0.0,
        prompt_elementwise=0.0,
        layer_s=0.0,
        eager_layer_s=0.0,
        prompt_layer_s=0.0,
        prompt_expert_layer_s=0.0,
        step_s=0.0,
        request_s=0.0,
        all_reduce_s=0.0,
        link_per_s=_link(hardware, cards, 1.0) if cards > 1 else 1.0,
        first_token_s=0.0,
        sharp=_SHARPEST,
    )


def source_of(hardware: HardwareConfig) -> str:
    """Say what the shares of the device's peaks go by."""
    return CARRIED if "products_share" in _carried(hardware) else DATA_SHEET


def missing(hardware: HardwareConfig, cards: int) -> list[str]:
    """Return the keys of a hardware file without which there are no rates."""
    keys = {
        f"peak_flops_per_s.{_DTYPE}": _DTYPE in hardware.peak_flops_per_s,
        "memory_bandwidth_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
        "memory_bytes": hardware.memory_bytes,
        "interconnect_bandwidth_bytes_per_s": cards == 1 or hardware.interconnect_bandwidth_bytes_per_s,
    }
    return [f"hardware.{key}" for key, known in keys.items() if not known]


def _carried(hardware: HardwareConfig) -> dict[str, float]:
    return hardware.measured(constants()["carried"])


def _fp8_share(hardware: HardwareConfig, own: Mapping[str, float]) -> float:
    """Return the share of the peak in 16 bits that products in fp8 reach, for which only architectures were measured.

    A card whose products in 16 bits reach more or less than its architecture's has the same limits in fp8.
    """
    known = constants()
    kin: float = known["carried"]["products_share"].get(hardware.measured_as, known["typical"]["products_share"])
    return own.get("fp8_products_share", 2 * kin) * own["products_share"] / kin


def _is_switched(hardware: HardwareConfig) -> bool:
    """Tell whether devices reach each other by other links than PCIe."""
    return float(hardware.interconnect_bandwidth_bytes_per_s or 1.0) >= float(constants()["links"]["switched_from"])


def _link(hardware: HardwareConfig, cards: int, share: float) -> float:
    """Return the bytes a device sends in a second; cards on PCIe without peer access go through the host's memory."""
    links = constants()["links"]
    bandwidth = float(hardware.interconnect_bandwidth_bytes_per_s or 1.0)
    if _is_switched(hardware):
        return bandwidth * share
    if hardware.peer_access:
        return bandwidth * float(links["peer_share"])
    table: dict[int, float] = links["through_host"]
    return table[min(table, key=lambda known: abs(known - cards))]
