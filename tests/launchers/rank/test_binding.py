from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from llmexp.launchers.rank import binding as module
from llmexp.launchers.rank.binding import bind_beside, binding

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cores are bound on Linux alone")


@pytest.fixture(autouse=True)
def own() -> Iterator[set[int]]:
    """This process's cores, which it has again afterwards."""
    cores = os.sched_getaffinity(0)
    yield set(cores)
    os.sched_setaffinity(0, cores)
    bind_beside(CPU)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A GPU whose NUMA node has these cores."""
    monkeypatch.setattr(module, "gpu_uuid", lambda device: "GPU-a")
    board = SimpleNamespace(local_cores=lambda: request.param(os.sched_getaffinity(0)))
    monkeypatch.setattr(module.here, "board", lambda uuid: board)


def first_of(cores: set[int]) -> set[int]:
    return {min(cores), 100_000}


@pytest.mark.parametrize("beside", [first_of], indirect=True)
@pytest.mark.usefixtures("beside")
def test_a_rank_keeps_to_those_of_its_cores_that_are_beside_its_gpu(own: set[int]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        bind_beside(CUDA)
    finally:
        torch.set_num_threads(threads)
    assert os.sched_getaffinity(0) == {min(own)}
    assert binding() == {"bound_cores": 1, "bound_cores_beside_gpu": 1}


@pytest.mark.parametrize("beside", [lambda cores: set(), lambda cores: {100_000}], indirect=True)
@pytest.mark.usefixtures("beside")
def test_where_no_core_is_known_to_be_beside_it_nothing_changes(own: set[int]) -> None:
    bind_beside(CUDA)
    assert os.sched_getaffinity(0) == own
    assert binding() == {"bound_cores": len(own), "bound_cores_beside_gpu": 0}


@pytest.mark.parametrize("beside", [first_of], indirect=True)
@pytest.mark.usefixtures("beside")
def test_threads_are_not_crowded_on_fewer_cores(own: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    bind_beside(CUDA)
    assert os.sched_getaffinity(0) == own


def test_a_rank_on_a_processor_is_not_bound(own: set[int]) -> None:
    bind_beside(CPU)
    assert os.sched_getaffinity(0) == own
    assert binding() == {}
