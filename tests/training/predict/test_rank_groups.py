"""Where the ranks of a group lie, and what their links give."""

from __future__ import annotations

import pytest

from llmexp.training.plan.dims import ParallelDims
from llmexp.training.predict.rank_groups import bytes_per_s, delay_s, group_of
from llmexp.training.predict.rates import constants
from tests.planning import make_plan

# 64 ranks on 8 nodes of 8: tp within a node, 2 of dp beside it, and 2 stages.
DIMS = ParallelDims(dp=8, tp=4, pp=2, cp=1, ep=4)
LINKS = {
    "switched_from": 100.0,
    "switched_share": 0.5,
    "network_share": 0.5,
    "through_host": {2: 8.0, 8: 1.0},
    "collective_s": 1.0,
    "node_s": 0.25,
}


def test_neighbors_share_a_node_as_far_as_they_fit() -> None:
    placed = {name: group_of(DIMS, 8, *names) for name, names in {"tp": ("tp",), "dp": ("cp", "dp")}.items()}
    assert (placed["tp"].ranks, placed["tp"].per_node, placed["tp"].nodes) == (4, 4, 1)
    assert (placed["dp"].ranks, placed["dp"].per_node, placed["dp"].nodes) == (8, 2, 4)
    experts = group_of(DIMS, 8, "ep")
    assert (experts.ranks, experts.per_node, experts.nodes) == (4, 2, 2)


def test_a_group_over_nodes_uses_the_network_cards_of_its_ranks() -> None:
    hardware = make_plan("hardware=a100").config.hardware
    fast = hardware.model_copy(
        update={"interconnect_bandwidth_bytes_per_s": 1000.0, "network_bandwidth_bytes_per_s": 100.0}
    )
    speeds = {names: bytes_per_s(fast, group_of(DIMS, 8, *names), LINKS) for names in (("tp",), ("cp", "dp"))}
    assert speeds == {("tp",): 500.0, ("cp", "dp"): 2 * 50.0}
    one_node = ParallelDims(dp=64, tp=1, pp=1, cp=1, ep=1)
    assert bytes_per_s(fast, group_of(one_node, 8, "cp", "dp"), LINKS) == 8 * 50.0


def test_cards_without_peer_access_share_the_hosts_memory_with_all_on_their_node() -> None:
    hardware = make_plan("hardware=rtx4090").config.hardware
    slow = hardware.model_copy(update={"interconnect_bandwidth_bytes_per_s": 50.0})
    pairs = ParallelDims(dp=4, tp=2, pp=1, cp=1, ep=1)
    assert bytes_per_s(slow, group_of(pairs, 8, "tp"), LINKS) == 1.0
    alone = ParallelDims(dp=1, tp=2, pp=1, cp=1, ep=1)
    assert bytes_per_s(slow, group_of(alone, 8, "tp"), LINKS) == 8.0


def test_small_collectives_take_longer_over_more_nodes_and_none_take_nothing() -> None:
    assert delay_s(group_of(DIMS, 8, "tp"), LINKS) == 1.0
    assert delay_s(group_of(DIMS, 8, "cp", "dp"), LINKS) == pytest.approx(1.75)
    assert delay_s(group_of(ParallelDims(dp=1, tp=1, pp=1, cp=1, ep=1), 8, "tp"), LINKS) == 0.0


def test_the_carried_constants_have_what_is_asked_of_them() -> None:
    assert set(LINKS) <= set(constants()["links"])
