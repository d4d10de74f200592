"""What serve.slo asks of a request."""

from __future__ import annotations

from llmexp.analysis.request_latency import Objective
from llmexp.schema.serving import SloConfig


def objective(slo: SloConfig) -> Objective:
    """Return the objective of a configuration."""
    return Objective(slo.ttft_s, slo.tpot_s, slo.end_to_end_s)
