"""Calls of a sample as one CUDA graph: kernels that are shorter than their launches follow each other without gaps."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from llmexp.measure.calls import Call
from llmexp.micro.plan.micro_plan import MicroPoint

IN_A_GRAPH = ", in a CUDA graph"
# Backward runs in the stream of its forward pass, and an optimizer counts its steps on the host.
_FAMILIES, _KINDS = ("gemm", "memory", "operators"), ("device_to_device",)


def can_be_graphed(point: MicroPoint) -> bool:
    """Tell whether a point's calls do nothing but launch kernels into the current stream."""
    attends = point.family == "attention" and point.kind.endswith("_forward")
    return point.family in _FAMILIES or point.kind in _KINDS or attends


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
