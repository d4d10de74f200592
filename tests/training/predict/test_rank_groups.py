"""Where the ranks of a group lie, and what their links give."""

from __future__ import annotations

import pytest

from llmexp.training.plan.dims import ParallelDims
from llmexp.training.predict.rank_groups import Group, bytes_per_s, copies_of, delay_s, group_of, sharers_of
from llmexp.training.predict.rates import constants, missing, rates_of
from llmexp.training.predict.work import work_of
from tests.planning import make_plan

# 64 ranks on 8 nodes of 8: tp within a node, 2 of dp beside it, and 2 stages.
DIMS = ParallelDims(dp=8, tp=4, pp=2, cp=1, ep=4)
LINKS = {
    "switched_from": 100.0,
    "switched_share": {2: 0.25, 4: 0.5, 8: 0.75},
    "network_share": 0.5,
    "peer_share": 0.6,
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
    assert speeds == {("tp",): 1000.0 * 0.5, ("cp", "dp"): 2 * 50.0}
    pairs = ParallelDims(dp=4, tp=2, pp=1, cp=1, ep=1)
    assert bytes_per_s(fast, group_of(pairs, 8, "tp"), LINKS) == 1000.0 * 0.25
    one_node = ParallelDims(dp=64, tp=1, pp=1, cp=1, ep=1)
    assert bytes_per_s(fast, group_of(one_node, 8, "cp", "dp"), LINKS) == 8 * 50.0


def test_cards_without_peer_access_share_the_hosts_memory_with_all_on_their_node() -> None:
    hardware = make_plan("hardware=rtx4090").config.hardware
    slow = hardware.model_copy(update={"interconnect_bandwidth_bytes_per_s": 50.0})
    pairs = ParallelDims(dp=4, tp=2, pp=1, cp=1, ep=1)
    assert bytes_per_s(slow, group_of(pairs, 8, "tp"), LINKS) == 1.0
    alone = ParallelDims(dp=1, tp=2, pp=1, cp=1, ep=1)
    assert bytes_per_s(slow, group_of(alone, 8, "tp"), LINKS) == 8.0


def test_cards_with_peer_access_have_as_much_however_many_they_are() -> None:
    hardware = make_plan("hardware=a6000").config.hardware
    both = [ParallelDims(dp=dp, tp=2, pp=1, cp=1, ep=1) for dp in (1, 4)]
    links = LINKS | {"switched_from": 100e9}
    assert {bytes_per_s(hardware, group_of(dims, 8, "tp"), links) for dims in both} == {31.5e9 * 0.6}
    through_host = hardware.model_copy(update={"peer_access": False})
    assert bytes_per_s(through_host, group_of(both[1], 8, "tp"), links) == 1.0


def test_small_collectives_take_longer_over_more_nodes_and_none_take_nothing() -> None:
    assert delay_s(group_of(DIMS, 8, "tp"), LINKS) == 1.0
    assert delay_s(group_of(DIMS, 8, "cp", "dp"), LINKS) == pytest.approx(1.75)
    assert delay_s(group_of(ParallelDims(dp=1, tp=1, pp=1, cp=1, ep=1), 8, "tp"), LINKS) == 0.0


def test_an_interconnect_that_reaches_beyond_a_node_spares_the_network() -> None:
    """In an NVL72 rack, 64 devices of 16 nodes communicate as those of one node do; the 73rd needs the network."""
    words = ("model=7b", "method=F+Z3", "precision=bf16_mixed", "hardware=gb200", "hardware.nodes=16")
    rack, apart = make_plan(*words), make_plan(*words, "hardware.interconnect_devices=4")
    faster, slower = rates_of(rack)[0], rates_of(apart)[0]
    share = constants()["links"]["switched_share"][8]
    assert faster.link_bytes_per_s == pytest.approx(900e9 * share)
    assert slower.link_bytes_per_s == pytest.approx(4 * 50e9 * constants()["links"]["network_share"])
    assert faster.delay_s < slower.delay_s
    without_network = make_plan(*words[:-1], "hardware.nodes=19", "hardware.network_bandwidth_bytes_per_s=null")
    assert missing(without_network) == ["hardware.network_bandwidth_bytes_per_s"]
    assert not missing(make_plan(*words, "hardware.network_bandwidth_bytes_per_s=null"))


def test_a_shard_on_each_node_leaves_the_network_its_copies() -> None:
    """Of 32 ranks on four nodes, eight share out the state, and four hold the same shard."""
    words = ("model=7b", "engine=torch", "method=F+Z3", "precision=bf16_mixed", "hardware=h100", "hardware.nodes=4")
    whole, shards = make_plan(*words), make_plan(*words, "parallelism.shard=8")
    assert sharers_of(shards.dims, 8) == group_of(ParallelDims(dp=8, tp=1, pp=1, cp=1, ep=1), 8, "dp")
    assert copies_of(shards.dims, 8) == Group(4, 1, 4, 8)
    assert sharers_of(whole.dims, 8) == group_of(whole.dims, 8, "cp", "dp")
    assert copies_of(whole.dims, 8).ranks == 1
    rates = rates_of(shards)[0]
    assert rates.copies_bytes_per_s == pytest.approx(50e9 * constants()["links"]["network_share"])
    work = work_of(shards)
    assert work.copied_bytes == pytest.approx(2 * (3 / 4) * work.reduced_bytes / (7 / 8) / 8)
    assert work_of(whole).copied_bytes == 0.0
    slow = make_plan(*words, "parallelism.shard=8", "hardware.network_bandwidth_bytes_per_s=1e9")
    assert slow.predicted.rate < shards.predicted.rate


def test_the_carried_constants_have_what_is_asked_of_them() -> None:
    assert set(LINKS) <= set(constants()["links"])
