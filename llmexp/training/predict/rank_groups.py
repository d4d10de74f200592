"""The links between ranks of each kind of parallelism: bytes a rank sends in a second, and the delay of a collective.

Ranks of a group lie on one node as long as they fit there. Beyond, a node's ranks of a group share its network cards.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, prod
from typing import Any

from llmexp.schema import HardwareConfig
from llmexp.training.plan.degrees import RANK_ORDER
from llmexp.training.plan.dims import ParallelDims


@dataclass(frozen=True)
class Group:
    """The ranks that communicate with each other: all of them, those on one node, and the nodes."""

    ranks: int
    per_node: int
    nodes: int
    beside: int
    """Ranks on a node, those of other groups too, which communicate at the same time."""


def group_of(dims: ParallelDims, devices: int, *names: str) -> Group:
    """Return the group over these degrees, which are neighbors in RANK_ORDER, on nodes with so many devices.

    Experts are shared out over neighbors among the ranks of dp and cp, and of tp where experts are cut less.
    """
    if names == ("ep",):
        ranks, stride = dims.ep, dims.expert_tensor
    else:
        ranks = prod(dims.degrees[name] for name in names)
        stride = prod(dims.degrees[name] for name in RANK_ORDER[: min(map(RANK_ORDER.index, names))])
    return _placed(dims, devices, ranks, stride)


def sharers_of(dims: ParallelDims, devices: int) -> Group:
    """Return the ranks that reduce gradients and gather parameters together: all that hold the same, or a shard."""
    return _placed(dims, devices, dims.sharers, dims.tp)


def copies_of(dims: ParallelDims, devices: int) -> Group:
    """Return the ranks that hold copies of a shard, and add their gradients up."""
    return _placed(dims, devices, dims.same_parameters // dims.sharers, dims.tp * dims.sharers)


def _placed(dims: ParallelDims, devices: int, ranks: int, stride: int) -> Group:
    """Return the group of so many ranks, each of which is the `stride`-th after the last."""
    per_node = max(1, min(ranks, devices // stride))
    return Group(ranks, per_node, ceil(ranks / per_node), min(dims.world_size, devices))


def bytes_per_s(hardware: HardwareConfig, group: Group, links: dict[str, Any]) -> float:
    """Return the bytes a rank sends in a second in collectives of large messages.

    Rings over nodes use the network cards of all ranks that a node has in the group.
    """
    here = _in_node(hardware, group, links) if group.per_node > 1 else inf
    if group.nodes == 1:
        return here
    network = hardware.network_bandwidth_bytes_per_s or inf
    return float(min(here, group.per_node * network * links["network_share"]))


def delay_s(group: Group, links: dict[str, Any]) -> float:
    """Return the seconds of a collective of a few bytes; none for one rank."""
    if group.ranks == 1:
        return 0.0
    return float(links["collective_s"] + links["node_s"] * (group.nodes - 1))


def _in_node(hardware: HardwareConfig, group: Group, links: dict[str, Any]) -> float:
    """Return the bytes a rank sends in a second to others on its node.

    Over a switch, few ranks use less of their links. Cards on PCIe without peer access go through the host's memory,
    where each of them has less the more there are.
    """
    bandwidth = hardware.interconnect_bandwidth_bytes_per_s or 1.0
    if bandwidth >= links["switched_from"]:
        return float(bandwidth * _nearest(links["switched_share"], group.per_node))
    if hardware.peer_access:
        return float(bandwidth * links["peer_share"])
    return _nearest(links["through_host"], group.beside)


def _nearest(by_ranks: dict[int, float], ranks: int) -> float:
    return by_ranks[min(by_ranks, key=lambda known: abs(known - ranks))]
