"""What a plan says of a split where its weights leave one device no room."""

from __future__ import annotations

from llmexp.record.digits import rounded
from llmexp.serving.advice.changes import bits_left
from llmexp.serving.advice.offload.machine import lacking, machine_of, offloaded_model
from llmexp.serving.advice.offload.placement import OfflineRequests
from llmexp.serving.advice.offload.search import SimulatedSplit, best_split
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.held import held, model_architecture
from llmexp.serving.predict.prediction import request_of, room_of
from llmexp.serving.predict.unpredicted import reason

_BITS = (16, 16)


def split_words(plan: ServingPlan) -> str:
    """Say how fast the fastest split of one device, its host and its disk would be; empty where the model fits.

    Splits are of models in 16 bits.
    """
    if plan.devices > 1 or reason(plan) or room_of(plan) > 0 or bits_left(plan) != _BITS:
        return ""
    if keys := lacking(plan.config.hardware):
        return f"not simulated without {' and '.join(keys)}"
    found = _split_of(plan)
    return _words(found) if found else "the host's memory and its disk have no room either (hardware.disk_bytes)"


def _split_of(plan: ServingPlan) -> SimulatedSplit | None:
    load = request_of(plan)
    asked = OfflineRequests(max(round(load.prompt), 1), max(round(load.output), 1))
    model = offloaded_model(held(model_architecture(plan.config.model)), asked.prompt + asked.output)
    return best_split(machine_of(plan.config.hardware), model, asked, plan.config.serve.requests)


def _words(split: SimulatedSplit) -> str:
    placement = split.placement
    return (
        f"simulated {rounded(split.time.tokens_per_s)} output tokens/s of one device that shares with its host and disk"
        f" (device / host / disk): weights {placement.weights}, keys and values {placement.cache}, "
        f"{placement.batches} batches of {placement.batch} a layer; most time: {split.time.most}"
    )
