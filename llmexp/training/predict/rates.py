"""The rates of a machine: fitted to published runs on it, else from measured kernels, else from its data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from llmexp.schema import HardwareConfig
from llmexp.schema.section import PeakDtype

# The paper's servers have eight cards, whose links are fitted.
_FITTED_RANKS = 8
FITTED, CARRIED, DATA_SHEET = "runs on this hardware", "measured kernels", "its data sheet"


@dataclass(frozen=True)
class Rates:
    """What a step is divided by; `constants.yaml` says where each comes from.

    Those of the machine come first, then those that all machines share.
    """

    peak_flops_per_s: Any
    memory_bytes_per_s: Any
    products_share: Any
    """Share of the peak that large products reach."""
    half_rows: Any
    """Rows at which products reach half of that."""
    attention_share: Any
    attention_half_length: Any
    launch_s: Any
    """Host time of a decoder layer's kernels in forward."""
    link_bytes_per_s: Any
    """Bytes a rank sends in collectives of all ranks."""
    host_s_per_parameter: Any
    """Time of the host's AdamW and its copies, for each parameter of all ranks together."""
    host_zero3: Any
    fetch_s: Any
    zero3_layer_s: Any
    elementwise: Any
    fused_elementwise: Any
    compiled_elementwise: Any
    backward_elementwise: Any
    score_bytes: Any
    backward_attention: Any
    backward_products: Any
    frozen_products: Any
    dequantized_bytes: Any
    adapter_launches: Any
    fused_launches: Any
    backward_launches: Any
    fused_update: Any
    unfused_update: Any
    adapter_gradients: Any
    overlap_replicated: Any
    overlap_zero2: Any
    overlap_zero3: Any
    zero3_adapter: Any
    zero3_again: Any


@cache
def constants() -> dict[str, Any]:
    """Return the fitted and carried numbers."""
    text = (files(__package__) / "constants.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def rates_of(
    hardware: HardwareConfig, products: str, ranks: int, known: Mapping[str, Any] | None = None
) -> tuple[Rates, str]:
    """Return the rates for `ranks` ranks on one node, whose products run in this dtype, and what they go by.

    `missing` has to have nothing to say of the hardware. `known` stands in the place of the carried constants.
    """
    known = known or constants()
    own: dict[str, float] = dict(known["hardware"].get(hardware.name, {}))
    if "link_bytes_per_s" in own:
        own["link_bytes_per_s"] *= _link(hardware, ranks) / _link(hardware, _FITTED_RANKS)
    architecture = hardware.architecture or ""
    carried = {name: by[architecture] for name, by in known["carried"].items() if architecture in by}
    rates = known["typical"] | carried | known["shared"] | {"link_bytes_per_s": _link(hardware, ranks)} | own
    rates |= {
        "peak_flops_per_s": hardware.peak_flops_per_s[products],
        "memory_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
    }
    names = {field.name for field in fields(Rates)}
    source = FITTED if own else CARRIED if carried else DATA_SHEET
    return Rates(**{name: value for name, value in rates.items() if name in names}), source


def missing(hardware: HardwareConfig, products: PeakDtype, ranks: int) -> list[str]:
    """Return the keys of a hardware file without which there are no rates."""
    keys = {
        f"peak_flops_per_s.{products}": products in hardware.peak_flops_per_s,
        "memory_bandwidth_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
        "interconnect_bandwidth_bytes_per_s": ranks == 1 or hardware.interconnect_bandwidth_bytes_per_s,
    }
    return [f"hardware.{key}" for key, known in keys.items() if not known]


def _link(hardware: HardwareConfig, ranks: int) -> float:
    """Return the bytes a rank sends in a second in collectives of large messages.

    Cards on PCIe without peer access go through the host's memory, where each of them has less the more there are.
    """
    links = constants()["links"]
    bandwidth = hardware.interconnect_bandwidth_bytes_per_s or 1.0
    if bandwidth >= links["switched_from"]:
        return float(bandwidth * links["switched_share"])
    table: dict[int, float] = links["through_host"]
    return table[min(table, key=lambda cards: abs(cards - ranks))]
