"""How long the ranks of a pipeline wait for each other, as a share of the time that they compute.

With backward twice as long as forward, and its halves (gradients of inputs and of weights) as long as forward each.
"""

from __future__ import annotations

from llmexp.training.plan.dims import ParallelDims

# What remains of the bubble of 1F1B where backward's halves fill it: a third with ZB-H1 (arXiv 2401.10241, table 2), a
# sixth with DualPipe-V, (pp / 2 - 1) x 2 half passes of 3 (arXiv 2412.19437, table 2). ZB-V has none where all halves
# take as long (2401.10241, section 6); it is taken for no better than DualPipe-V.
_LEFT = {"zero_bubble": 1 / 3, "zbv": 1 / 6, "dualpipev": 1 / 6}
# These have a bubble that shrinks with the stages of a rank (arXiv 2104.04473, section 2.2.2; 2211.05953).
_INTERLEAVED = ("interleaved", "looped_bfs", "zero_bubble")


def bubble_share(dims: ParallelDims, passes: int) -> float:
    """Return the time of waiting over the time of `passes` passes: (pp - 1) / passes with GPipe and 1F1B."""
    if dims.pp == 1 or dims.schedule is None:
        return 0.0
    stages = dims.virtual_stages if dims.schedule in _INTERLEAVED else 1
    return (dims.pp - 1) / (passes * stages) * _LEFT.get(dims.schedule, 1.0)
