"""The rates of a machine: fitted to published runs on it, else measured here, else carried or from its data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from llmexp.schema import HardwareConfig
from llmexp.training.plan.float8 import multiplies_fp8
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.changed import as_filed, changed_numbers
from llmexp.training.predict.micro_results import card_rates
from llmexp.training.predict.rank_groups import Group, bytes_per_s, copies_of, delay_s, group_of, sharers_of

# The paper's servers have eight cards, whose links are fitted.
_FITTED_GROUP = Group(8, 8, 1, 8)
FITTED, CARRIED, DATA_SHEET = "runs on this hardware", "measured kernels", "its data sheet"
MEASURED = "microbenchmarks of this hardware"


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
    fp8_flops_per_s: Any
    """The peak of products in fp8."""
    fp8_share: Any
    attention_share: Any
    attention_half_length: Any
    launch_s: Any
    """Host time of a decoder layer's kernels in forward."""
    link_bytes_per_s: Any
    """Bytes a rank sends in collectives of all ranks with the same parameters, or of those of a shard."""
    copies_bytes_per_s: Any
    """Bytes it sends to the copies of its shard."""
    tensor_bytes_per_s: Any
    context_bytes_per_s: Any
    expert_bytes_per_s: Any
    stage_bytes_per_s: Any
    delay_s: Any
    """What a collective of a few bytes takes, for each of these links."""
    tensor_delay_s: Any
    context_delay_s: Any
    expert_delay_s: Any
    stage_delay_s: Any
    host_link_bytes_per_s: Any
    host_s_per_parameter: Any
    """Time of the host's AdamW and its copies, for each parameter of all ranks together."""
    host_zero3: Any
    host_adapter: Any
    """The share of that time that an adapter's parameter takes."""
    fetch_s: Any
    zero3_layer_s: Any
    elementwise: Any
    fused_elementwise: Any
    compiled_elementwise: Any
    megatron_elementwise: Any
    backward_elementwise: Any
    score_bytes: Any
    backward_attention: Any
    backward_products: Any
    frozen_products: Any
    dequantized_bytes: Any
    cast_accesses: Any
    """Bytes that casts to fp8 take the time of, over those that they read and write."""
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


def rates_of(plan: TrainingPlan, known: Mapping[str, Any] | None = None) -> tuple[Rates, str]:
    """Return the rates of a plan's machine, and what they go by.

    `missing` has to have nothing to say of the plan. `known` stands in the place of the carried constants, and of what
    has been measured here.
    """
    judged, known, hardware = known is not None, known or constants(), plan.config.hardware
    own: dict[str, float] = known["hardware"].get(hardware.name, {})
    carried = hardware.measured(known["carried"])
    if plan.config.kernels.flash == "fa2" and "fa2_attention_share" in carried:
        carried["attention_share"] = carried["fa2_attention_share"]
    products, links = plan.config.precision.products, known["links"]
    peak = hardware.peak_flops_per_s[products]
    here = (None if own or judged else card_rates(plan)) or ({}, "")
    is_switched = (hardware.interconnect_bandwidth_bytes_per_s or 0.0) >= links["switched_from"]
    typical = known["typical"] | (known["switched"] if is_switched else {})
    rates = typical | carried | known["shared"]
    rates |= {
        "products_share": rates["products_share"] * known["sustained_share"],
        "fp8_share": _fp8_share(hardware, known),
        **own,
        **_links(plan, links, own.get("link_bytes_per_s")),
    }
    rates |= here[0]
    changed = changed_numbers(hardware)
    rates |= {
        "peak_flops_per_s": peak,
        "memory_bytes_per_s": (hardware.memory_bandwidth_bytes_per_s or 0.0) * carried.get("bandwidth_share", 1.0),
        "fp8_flops_per_s": hardware.peak_flops_per_s.get("fp8", peak),
        # They stream through memory as the fused update does.
        "cast_accesses": rates["fused_update"],
        # Slower products take fewer rows to be as slow as reading their weights.
        "half_rows": rates["half_rows"] * peak / hardware.peak_flops_per_s.get("bf16", peak),
        "host_link_bytes_per_s": (hardware.host_link_bandwidth_bytes_per_s or 1.0) * links["host_link_share"],
    }
    names = {field.name for field in fields(Rates)}
    source = FITTED if own else f"{MEASURED} ({here[1]})" if here[1] else CARRIED if carried else DATA_SHEET
    if changed:
        source = f"{f'runs on {hardware.name}' if own else source} with another {' and '.join(changed)}"
    return Rates(**{name: value for name, value in rates.items() if name in names}), source


def _fp8_share(hardware: HardwareConfig, known: Mapping[str, Any]) -> float:
    """Return the share of their peak that products in fp8 reach, which only architectures were measured for.

    A card whose products in 16 bits reach more or less than its architecture's has the same limits in fp8.
    """
    carried, typical, kin = known["carried"], known["typical"], hardware.measured_as
    usual: float = carried["products_share"].get(kin, typical["products_share"])
    share: float = carried["fp8_share"].get(kin, typical["fp8_share"])
    return share * float(carried["products_share"].get(hardware.name, usual)) / usual


def missing(plan: TrainingPlan) -> list[str]:
    """Return the keys of a hardware file without which there are no rates."""
    hardware, precision, products = plan.config.hardware, plan.config.precision, plan.config.precision.products
    ranks = plan.dims.world_size
    connected = hardware.connected_devices
    keys = {
        f"peak_flops_per_s.{products}": products in hardware.peak_flops_per_s,
        f"peak_flops_per_s.{precision.linears}": not (precision.linears and multiplies_fp8(hardware))
        or precision.linears in hardware.peak_flops_per_s,
        "memory_bandwidth_bytes_per_s": hardware.memory_bandwidth_bytes_per_s,
        "interconnect_bandwidth_bytes_per_s": min(ranks, connected) == 1 or hardware.interconnect_bandwidth_bytes_per_s,
        "network_bandwidth_bytes_per_s": ranks <= connected or hardware.network_bandwidth_bytes_per_s,
        "host_link_bandwidth_bytes_per_s": not plan.config.memory.activation_offload
        or hardware.host_link_bandwidth_bytes_per_s,
    }
    return [f"hardware.{key}" for key, known in keys.items() if not known]


def _links(plan: TrainingPlan, links: dict[str, Any], fitted: float | None) -> dict[str, float]:
    """Return bandwidth and delay of each kind of parallelism; links that are fitted keep their ratio to the formula.

    Another interconnect than the file's changes what cards on PCIe send by as much.
    """
    hardware, dims = plan.config.hardware, plan.dims
    filed = as_filed(hardware)
    ratio = fitted / bytes_per_s(filed, _FITTED_GROUP, links) if fitted else 1.0
    faster = _over(hardware.interconnect_bandwidth_bytes_per_s, filed.interconnect_bandwidth_bytes_per_s)
    links = links | {"through_host": {cards: faster * rate for cards, rate in links["through_host"].items()}}
    kinds, devices = {"tensor_": "tp", "context_": "cp", "expert_": "ep"}, hardware.connected_devices
    groups = {kind: group_of(dims, devices, name) for kind, name in kinds.items()}
    groups |= {"stage_": _neighbors(plan), "": sharers_of(dims, devices), "copies_": copies_of(dims, devices)}
    speeds = {
        f"{kind or 'link_'}bytes_per_s": ratio * bytes_per_s(hardware, group, links) for kind, group in groups.items()
    }
    return speeds | {f"{kind}delay_s": delay_s(group, links) for kind, group in groups.items()}


def _over(now: float | None, filed: float | None) -> float:
    return now / filed if now and filed else 1.0


def _neighbors(plan: TrainingPlan) -> Group:
    """Return the two ranks of neighboring stages: on one node, or on two as soon as stages lie on several."""
    dims, devices = plan.dims, plan.config.hardware.connected_devices
    apart, ranks = dims.world_size > devices, 1 if dims.pp == 1 else 2
    return Group(ranks, 1 if apart else ranks, 2 if apart else 1, min(dims.world_size, devices))
