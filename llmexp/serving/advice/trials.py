"""A server with other settings, as it would be planned: predicted without composing the command line anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmexp.record.predicted import Prediction
from llmexp.serving.advice.changes import bits_left
from llmexp.serving.advice.open_keys import Settings
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict import predict


@dataclass(frozen=True)
class ServedTrial:
    """Settings besides the command line's, the plan that has them, and its prediction."""

    settings: Settings
    plan: ServingPlan
    predicted: Prediction

    @property
    def devices(self) -> int:
        """The devices of all copies."""
        return self.plan.devices

    @property
    def bits(self) -> tuple[int, int]:
        """The bits of a weight and of a number of the cache."""
        return bits_left(self.plan)

    @property
    def tpot_s(self) -> float:
        """The longest time per output token of its loads."""
        return max((load.tpot_s for load in self.predicted.loads), default=0.0)


def tried(base: ServingPlan, settings: Settings) -> ServedTrial | None:
    """Return the trial of some settings; None where it is not predicted, as where the weights leave no room."""
    plan = with_settings(base, settings)
    predicted = predict(plan)
    return ServedTrial(settings, plan, predicted) if predicted else None


def with_settings(base: ServingPlan, settings: Settings) -> ServingPlan:
    """Return a plan with other settings, which has no identity of its own."""
    config, sections = base.config, _by_section(settings)
    options = {**config.engine.options, **sections.get("engine.options", {})}
    parallelism = config.parallelism.model_copy(update=sections.get("parallelism", {}))
    engine = config.engine.model_copy(update={"options": options})
    changed = config.model_copy(update={"engine": engine, "parallelism": parallelism})
    devices = parallelism.tp * parallelism.pp * parallelism.dp
    return base.model_copy(update={"config": changed, "devices": devices})


def _by_section(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return settings by their section, such as parallelism, and their last name."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        sections.setdefault(section, {})[name] = value
    return sections
