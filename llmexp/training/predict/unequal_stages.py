"""A pipeline whose stages have unequal cards: the best share of the layers, and the step it is simulated to take.

Each stage takes as long for a layer as a pipeline of its own cards alone is predicted to. Micro batches go through the
stages one after the other, over links that send while stages compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.schema import HardwareConfig
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.predictor import predictor_of
from llmexp.training.predict.rates import rates_of
from llmexp.training.predict.work import work_of


@dataclass(frozen=True)
class UnequalPipeline:
    """The layers of each stage, and tokens/s of all devices with them and with as many layers on each."""

    layers: tuple[int, ...]
    rate: float
    equal_rate: float
    slowest: str
    """What takes longest for a micro batch: a stage's hardware, or the link between two."""


def unequal_pipeline(plan: TrainingPlan, cards: Sequence[HardwareConfig]) -> UnequalPipeline:
    """Share out the layers of a predicted plan, whose parallelism.pp is the number of `cards`."""
    work, on = work_of(plan), [on_card(plan, card) for card in cards]
    steps = [predictor_of(each).step({}) for each in on]
    passes = [step.forward + step.again + step.backward + step.tensor + step.context + step.experts for step in steps]
    layer_s = [float(seconds / (work.passes * work.layers)) for seconds in passes]
    rest_s = max(float(step.exposed + step.optimizer + step.host) for step in steps)
    rates = rates_of(plan)[0]
    link_s = 2 * float(work.stage_bytes / rates.stage_bytes_per_s + work.stage_calls * rates.stage_delay_s)
    shared = shared_out(round(work.layers * len(cards)), layer_s)
    equal = [work.layers] * len(cards)
    rate, equal_rate = (
        plan.amount / (pipeline_s(_times(layers, layer_s), link_s, round(work.passes)) + rest_s)
        for layers in (shared, equal)
    )
    slowest = max(zip(_times(shared, layer_s), cards, strict=True), key=lambda each: each[0])
    return UnequalPipeline(tuple(shared), rate, equal_rate, "the link" if link_s > slowest[0] else slowest[1].name)


def shared_out(layers: int, layer_s: Sequence[float]) -> list[int]:
    """Give each stage at least one layer, and the others one by one to the stage that then takes least."""
    shares = [1] * len(layer_s)
    for _ in range(layers - len(layer_s)):
        taken = [(share + 1) * seconds for share, seconds in zip(shares, layer_s, strict=True)]
        shares[taken.index(min(taken))] += 1
    return shares


def pipeline_s(stage_s: Sequence[float], link_s: float, passes: int) -> float:
    """Return the seconds in which all micro batches have gone through all stages and links.

    The first one goes through all of them, the others follow at the pace of the slowest.
    """
    links = [link_s] * (len(stage_s) - 1)
    return sum(stage_s) + sum(links) + (passes - 1) * max(*stage_s, *links)


def _times(layers: Sequence[float], layer_s: Sequence[float]) -> list[float]:
    return [count * seconds for count, seconds in zip(layers, layer_s, strict=True)]


def on_card(plan: TrainingPlan, card: HardwareConfig) -> TrainingPlan:
    """Return the plan with another card, whose nodes and links are the plan's."""
    hardware = plan.config.hardware
    within = ("interconnect_devices", "interconnect_bandwidth_bytes_per_s", "peer_access")
    kept = ("devices_per_node", "nodes", *within, "network_bandwidth_bytes_per_s")
    other = card.model_copy(update={name: getattr(hardware, name) for name in kept})
    return plan.model_copy(update={"config": plan.config.model_copy(update={"hardware": other})})
