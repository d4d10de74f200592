"""Splits of a model over device, host and disk: against FlexGen's published figures, and the search against chance."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import median

import pytest

from benchmarks.prediction.offload import CHOSEN_BY, PUBLISHED_SPLITS, T4, PublishedSplit, errors, opt
from llmexp.serving.advice.offload.placement import OffloadPlacement, TierShares, block_time, fits, held_by
from llmexp.serving.advice.offload.search import best_split
from llmexp.serving.task import SERVE
from tests.serving.advice.served_options import served

BY_NAME = {(row.model, row.prompt): row for row in PUBLISHED_SPLITS}
LARGE = BY_NAME["175B", 512]
ONE_4090 = ("hardware=rtx4090", "hardware.devices_per_node=1", "engine=vllm")


def speed(row: PublishedSplit, placement: OffloadPlacement) -> float:
    return block_time(T4, opt(row.model), row.asked, placement).tokens_per_s


def test_simulated_splits_are_as_fast_as_flexgens() -> None:
    """The run that chose the disks' rate is left out."""
    off = [abs(error) for error in errors()]
    assert len(off) == len(PUBLISHED_SPLITS) - 1
    assert median(off) < 0.06
    assert max(off) < 0.15
    assert BY_NAME[CHOSEN_BY].simulated == pytest.approx(BY_NAME[CHOSEN_BY].tokens_per_s, rel=0.01)


@pytest.mark.parametrize("row", PUBLISHED_SPLITS, ids=lambda row: f"{row.model}-{row.prompt}")
def test_the_search_finds_what_fits_and_is_as_fast_as_published_splits(row) -> None:
    best = row.best
    assert best.time.tokens_per_s >= row.simulated
    assert fits(T4, opt(row.model), row.asked, best.placement)
    for shares in (best.placement.weights, best.placement.cache):
        assert shares.device + shares.host + shares.disk == pytest.approx(1)


def test_the_largest_model_is_split_as_its_authors_did() -> None:
    """Nothing stays on the device, half of the weights are in the host's memory, and the cache is on the disk."""
    placement = LARGE.best.placement
    assert (placement.weights.device, placement.weights.host) == (0.0, pytest.approx(0.5, abs=0.05))
    assert placement.cache.disk > 0.95
    assert LARGE.best.time.most == "disk"


@pytest.mark.parametrize("key", [("30B", 512), ("175B", 512)])
def test_no_split_by_chance_is_faster(key) -> None:
    """Of the same block; the search's shares are in steps of a twentieth."""
    row, chance = BY_NAME[key], Random(0)
    best, model = row.best, opt(row.model)
    block = (best.placement.batch, best.placement.batches)
    found = 0
    for _ in range(4000):
        weights, cache = (TierShares(one, two - one) for one, two in (_two(chance), _two(chance)))
        placement = OffloadPlacement(weights, cache, *block, attends_on_host=chance.random() < 0.5)
        if fits(T4, model, row.asked, placement):
            found += 1
            assert speed(row, placement) <= 1.05 * best.time.tokens_per_s
    assert found > 50


def _two(chance: Random) -> list[float]:
    return sorted((chance.random() ** 8, chance.random() ** 2))


def test_all_bytes_lie_somewhere() -> None:
    model, placement = opt("175B"), LARGE.placement
    device, host, disk = held_by(model, LARGE.asked, placement)
    weights = model.layers * model.weights
    cache = model.layers * model.kept_per_token * 544 * placement.requests
    assert disk == pytest.approx(weights / 2 + cache)
    assert weights / 2 < host < weights / 2 + 10e9
    assert device < T4.device_bytes


@pytest.mark.parametrize(
    ("more", "is_felt"),
    [
        ({"read_per_s": 2 * T4.read_per_s, "write_per_s": 2 * T4.write_per_s}, True),
        ({"host_bytes": 4 * T4.host_bytes}, True),
        ({"memory_per_s": 2 * T4.memory_per_s}, False),
    ],
)
def test_more_of_what_bounds_a_split_makes_it_faster(more, is_felt) -> None:
    model = opt("175B")
    now, then = (best_split(one, model, LARGE.asked, 256) for one in (T4, replace(T4, **more)))
    assert now
    assert then
    assert (then.time.tokens_per_s > 1.05 * now.time.tokens_per_s) is is_felt


def test_writing_the_cache_of_prompts_takes_the_disk_too() -> None:
    model, slow = opt("175B"), replace(T4, write_per_s=T4.write_per_s / 100)
    kept = model.layers * model.kept_per_token * LARGE.prompt * LARGE.placement.requests
    parts = block_time(slow, model, LARGE.asked, LARGE.placement).parts_s
    assert parts["disk"] > kept / slow.write_per_s


def test_a_cache_that_is_brought_to_the_device_is_read_there() -> None:
    row, slow = BY_NAME["30B", 512], replace(T4, memory_per_s=1e9)
    model, brought = opt("30B"), replace(row.placement, attends_on_host=False)
    kept = model.layers * model.kept_per_token * row.asked.context * brought.requests
    here, there = (block_time(slow, model, row.asked, one).parts_s["computing"] for one in (brought, row.placement))
    assert here - there == pytest.approx(31 * kept / slow.memory_per_s)


def test_without_a_disk_the_largest_model_fits_nowhere() -> None:
    assert best_split(replace(T4, disk_bytes=0.0), opt("175B"), LARGE.asked, 256) is None
    assert best_split(replace(T4, disk_bytes=0.0), opt("30B"), LARGE.asked, 256)


def test_a_fast_link_brings_the_cache_to_the_device() -> None:
    fast = best_split(replace(T4, link_per_s=200e9), opt("30B"), LARGE.asked, 256)
    slow = best_split(replace(T4, link_per_s=2e9), opt("30B"), LARGE.asked, 256)
    assert fast
    assert slow
    assert (fast.placement.attends_on_host, slow.placement.attends_on_host) == (False, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("model=70b", *ONE_4090), "simulated "),
        (("model=7b", *ONE_4090), ""),
        (("model=70b", *ONE_4090, "hardware.host_memory_bytes=64e9"), "the host's memory and its disk have no room"),
        (
            (
                *("model=70b", *ONE_4090, "hardware.host_memory_bytes=64e9"),
                *("hardware.disk_bytes=2e12", "hardware.disk_bandwidth_bytes_per_s=6e9"),
            ),
            "simulated ",
        ),
        (("model=70b", "hardware=a100", "engine=vllm"), "not simulated without hardware.host_memory_bytes"),
        (("model=70b", *ONE_4090, "engine.options.quantization=fp8"), ""),
    ],
)
def test_a_plan_that_does_not_fit_says_how_it_could_be_split(words, said) -> None:
    told = SERVE.describe(served(*words)).get("offload", "")
    assert told.startswith(said)
    assert bool(told) is bool(said)
