from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from llmexp.launchers.micro.graphs import graph_of
from llmexp.registry import get_family


@pytest.mark.parametrize(
    ("family", "kind", "graphed"),
    [
        ("gemm", "gemm", True),
        ("memory", "triad", True),
        ("operators", "rms_norm", True),
        ("attention", "cudnn_forward", True),
        ("attention", "flash_backward", False),
        ("copies", "device_to_device", True),
        ("copies", "host_to_device_pageable", False),
        ("collectives", "all_reduce", False),
        ("optimizer", "adamw_on_device", False),
        ("disk", "read", False),
    ],
)
def test_only_what_launches_into_the_current_stream_is_recorded(family: str, kind: str, graphed: bool) -> None:
    assert get_family(family).is_graphed(kind) is graphed


left: list[str] = []


class Graph:
    def replay(self) -> str:
        return "replayed"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def capturing(graph: Graph) -> Iterator[None]:
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "before")
    monkeypatch.setattr(torch.cuda, "set_stream", left.append)
    left.clear()


@pytest.mark.usefixtures("cuda")
def test_calls_are_recorded_in_turn_and_one_that_cuda_refuses_records_none() -> None:
    called: list[int] = []
    replay = graph_of([lambda: called.append(1), lambda: called.append(2)])
    assert replay
    assert (called, replay()) == ([1, 2], "replayed")

    def refused() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    assert graph_of([lambda: called.append(3), refused]) is None
    assert left == ["before"]
