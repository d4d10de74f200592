from __future__ import annotations

import torch

from llmexp.measure.compilation import Compilation


def test_graphs_recompilations_and_breaks_are_counted() -> None:
    def double(value: torch.Tensor) -> torch.Tensor:
        value = value * 2
        torch._dynamo.graph_break()
        return value * 2

    before = Compilation.so_far()
    compiled = torch.compile(double, backend="eager", dynamic=False)
    compiled(torch.ones(2))
    once = Compilation.so_far()
    compiled(torch.ones(2))
    again = Compilation.so_far()
    compiled(torch.ones(3))
    assert (once.graphs - before.graphs, once.graph_breaks - before.graph_breaks) == (2, 1)
    assert again == once
    assert Compilation.so_far().graphs - once.graphs == 2


def test_what_never_compiled_says_nothing() -> None:
    assert Compilation().what_ran == {}
    assert Compilation(2, 0).what_ran == {"compiled_graphs": 2, "graph_breaks": 0}
