"""One configuration that could be chosen, with what is expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llmexp.launch.preflight import certain_skip
from llmexp.record.memory import Fit, FitVerdict
from llmexp.record.plan import RunPlan
from llmexp.record.predicted import Prediction
from llmexp.registry import get_task
from llmexp.report.training_budget import SECONDS_AN_HOUR, TrainingBudget, TrainingCost
from llmexp.sweep.cost import Cost


@dataclass(frozen=True)
class Option:
    """A plan that `llmexp advise` may name; the rate is that of all devices, measured here or predicted."""

    cost: Cost
    failed: bool = False
    """Tell whether its run just ended without a speed."""

    @property
    def plan(self) -> RunPlan:
        """The plan of the run that it would be."""
        return self.cost.plan

    @property
    def machine(self) -> tuple[str, int]:
        """The hardware and the number of its devices."""
        return self.plan.config.hardware.name, self.plan.devices

    @property
    def predicted(self) -> Prediction:
        """The prediction, which every option has."""
        assert self.plan.predicted is not None
        return self.plan.predicted

    @property
    def measured(self) -> bool:
        """Tell whether the outputs folder has this very run."""
        return self.cost.speed is not None and self.cost.speed.is_own

    @property
    def ended_badly(self) -> bool:
        """Tell whether its run gave no speed, now or before: it was out of memory, or out of time."""
        answered = self.cost.source == "nothing" and not certain_skip(self.plan)
        return self.failed or (answered and not self.measured)

    @property
    def rate(self) -> float:
        """Tokens/s of all devices."""
        speed = self.cost.speed
        return speed.per_device * self.plan.devices if speed and self.measured else self.predicted.rate

    @property
    def interval(self) -> tuple[float, float]:
        """The ends in which nine of ten measured rates lay; the rate itself where it was measured."""
        return (self.rate, self.rate) if self.measured else (self.predicted.low, self.predicted.high)

    @cached_property
    def fit(self) -> Fit | None:
        """How it fits its devices."""
        found: Fit | None = get_task(self.plan.config.task.name).fit(self.plan)
        return found

    @cached_property
    def verdict(self) -> FitVerdict:
        """The answer whether it fits device and host, as it did where it was measured; uncertain if not known."""
        if certain_skip(self.plan) or self.ended_badly:
            return "no"
        if self.measured:
            return "yes"
        return self.fit.verdict if self.fit else "uncertain"

    @property
    def free_share(self) -> float:
        """The share of a device's memory that is left; below 0 where it does not fit."""
        return 1 - self.fit.need / self.fit.capacity if self.fit else 0.0

    @cached_property
    def changes(self) -> Sequence[str]:
        """The words for what it computes otherwise than a plain run does."""
        found: Sequence[str] = get_task(self.plan.config.task.name).changes_mathematics(self.plan)
        return found

    @property
    def price_per_hour_usd(self) -> float | None:
        """The price of all devices."""
        price = self.plan.config.hardware.price_per_device_hour_usd
        return None if price is None else price * self.plan.devices

    @property
    def tokens_per_usd(self) -> float | None:
        """Tokens for a dollar; None without a price."""
        price = self.price_per_hour_usd
        return self.rate * SECONDS_AN_HOUR / price if price else None

    def training(self, training: TrainingBudget) -> TrainingCost:
        """Return what a whole training takes."""
        price = self.plan.config.hardware.price_per_device_hour_usd
        return TrainingCost(training.amount / self.rate, self.plan.devices, price)

    @property
    def bound(self) -> dict[str, float]:
        """The shares of a sample's time by part, the largest first."""
        parts = self.predicted.parts_s
        whole = sum(parts.values())
        return {part: parts[part] / whole for part in sorted(parts, key=lambda part: -parts[part])}
