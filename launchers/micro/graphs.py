"""Calls of a sample as one CUDA graph: kernels that are shorter than their launches follow each other without gaps."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from llmexp.measure.calls import Call

IN_A_GRAPH = ", in a CUDA graph"


def graph_of(calls: Sequence[Call]) -> Call | None:
    """Return a call that launches these calls at once; None where CUDA cannot record one of them."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            for call in calls:
                call()
    except RuntimeError:
        # A recording that failed does not leave its stream.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        return None
    return graph.replay
