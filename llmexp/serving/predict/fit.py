"""Whether a server fits its devices: its weights, what it computes with, and keys and values of one request."""

from __future__ import annotations

from llmexp.record.memory import Fit
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.limits import besides, memory_share
from llmexp.serving.predict.prediction import held_of
from llmexp.serving.predict.unpredicted import reason


def served_fit(plan: ServingPlan) -> Fit | None:
    """Return how a server fits one of its devices; None where its layers, its engine or its device are not known.

    What a server computes with is an estimate, as its predicted throughput is by.
    """
    if reason(plan):
        return None
    part, hardware = held_of(plan), plan.config.hardware
    weights, request = round(part.weights_bytes), round(part.cache_bytes(plan.positions))
    beside = besides(hardware)
    return Fit(
        state=weights,
        rest=beside + request,
        capacity=round(memory_share(plan.config.engine.options) * float(hardware.memory_bytes or 0)),
        parts={"weights": weights, "a request's keys and values": request, "computing": beside},
    )
