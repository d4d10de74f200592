"""Every microbenchmark computes what it says it times; and a wrong collective is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from llmexp.launchers.micro import collectives, memory
from llmexp.launchers.micro.case import CasePlace
from llmexp.launchers.micro.worker import maker
from llmexp.micro.families.base import MicroPoint
from llmexp.registry import get_family

CACHE_BYTES = 2**16
HEADS = {"batch": 1, "heads": 4, "kv_heads": 2, "seq_len": 160, "head_dim": 16}
POINTS = [
    MicroPoint(family="gemm", kind="gemm", dtype="fp32", sizes={"m": 33, "n": 40, "k": 24}),
    MicroPoint(family="gemm", kind="gemm", dtype="bf16", sizes={"m": 33, "n": 40, "k": 24}),
    MicroPoint(family="memory", kind="triad", sizes={"bytes": 4096}),
    MicroPoint(family="copies", kind="device_to_device", sizes={"bytes": 4097}),
    MicroPoint(family="copies", kind="host_to_device_pageable", sizes={"bytes": 4097}),
    *(
        MicroPoint(family="attention", kind=f"{kernel}_{way}", dtype="fp32", sizes=HEADS)
        for kernel in ("flash", "unfused")
        for way in ("forward", "backward")
    ),
    MicroPoint(family="operators", kind="rms_norm", dtype="fp32", sizes={"tokens": 32, "hidden": 64}),
    MicroPoint(
        family="operators", kind="rope", dtype="fp32", sizes={"tokens": 32, "heads": 4, "kv_heads": 2, "head_dim": 16}
    ),
    MicroPoint(family="operators", kind="softmax", dtype="bf16", sizes={"tokens": 32, "heads": 4}),
    MicroPoint(family="operators", kind="cross_entropy", dtype="fp32", sizes={"tokens": 80, "vocab": 100}),
    MicroPoint(family="optimizer", kind="adamw_on_device", dtype="fp32", sizes={"parameters": 5000}),
    MicroPoint(family="disk", kind="write", sizes={"bytes": 10_000}),
    MicroPoint(family="disk", kind="read", sizes={"bytes": 2**21}),
]


@pytest.fixture
def place(tmp_path: Path) -> CasePlace:
    torch.manual_seed(0)
    return CasePlace(torch.device("cpu"), 0, 1, CACHE_BYTES, tmp_path)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_it_computes_what_it_times(point: MicroPoint, place: CasePlace) -> None:
    try:
        case = maker(get_family(point.family))(point, place)
    except OSError as error:
        assert point.family == "disk"
        pytest.skip(f"this filesystem has no direct input and output: {error}")
    assert case.wrong() == ""
    for call in case.calls:
        call()
    assert not list(place.folder.iterdir())


def test_small_inputs_come_in_so_many_sets_that_no_cache_holds_the_next(place: CasePlace) -> None:
    small = MicroPoint(family="memory", kind="triad", sizes={"bytes": 4096})
    large = MicroPoint(family="memory", kind="triad", sizes={"bytes": 2**17})
    assert len(memory.triad(small, place).calls) == -(-2 * CACHE_BYTES // (3 * 4096))
    assert len(memory.triad(large, place).calls) == 1


@pytest.mark.usefixtures("alone")
def test_a_collective_that_gives_another_result_is_noticed(place: CasePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    point = MicroPoint(family="collectives", kind="all_reduce", sizes={"bytes": 400})
    assert collectives.collective(point, place).wrong() == ""
    monkeypatch.setattr(collectives.distributed, "all_reduce", lambda buffer: buffer.add_(1))
    assert collectives.collective(point, place).wrong() == "rank 0 got a wrong result from all_reduce"
