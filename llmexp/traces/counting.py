"""The work of a trace whose floating-point operations are known, by operator and shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmexp.record.counted import AttentionTime, GemmTime
from llmexp.traces.asked import asked_by
from llmexp.traces.attention import attention_shape, attention_times
from llmexp.traces.events import Trace
from llmexp.traces.gemms import gemm_times, product_shape
from llmexp.traces.inputs import ATTENTION, PRODUCTS
from llmexp.traces.kinds import COMPUTE
from llmexp.traces.times import Numbers
from llmexp.traces.work import Work


@dataclass(frozen=True)
class Counted:
    """The products and the attention, and the rows of the work that they took."""

    gemms: list[GemmTime]
    attention: list[AttentionTime]
    rows: Numbers

    @property
    def flops(self) -> float:
        """The operations of all of them."""
        return sum(each.flops for each in (*self.gemms, *self.attention))


def count(trace: Trace, work: Work, multiplies: Numbers) -> Counted:
    """Count what the trace has shapes of; `multiplies` are the rows of the work that are products of matrices.

    Attention that is computed by products counts as these.
    """
    products = asked_by(PRODUCTS, trace, work, multiplies)
    computing = np.flatnonzero(work.category == COMPUTE)
    fused = asked_by(ATTENTION, trace, work, computing, outermost=True)
    known = [each.pieces for each in products if product_shape(each.operator, each.inputs)]
    known += [each.pieces for each in fused if attention_shape(ATTENTION[each.operator], each.inputs)]
    rows = np.unique(np.concatenate(known)) if known else np.empty(0, np.int64)
    return Counted(gemm_times(products, work, trace.names), attention_times(fused, work), rows)
