"""Choose the runs of a sweep that a budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from llmexp.errors import ConfigError
from llmexp.schema import BudgetConfig
from llmexp.sweep.cost import Cost, time_on_devices
from llmexp.sweep.levels import maker_of


def within_budget(costs: Sequence[Cost], budget: BudgetConfig) -> list[bool]:
    """Say of each run whether the budget allows it; the cheapest runs come first.

    Raises ConfigError where the budget allows no run, or not all of them and budget.when_over=refuse.
    """
    limits = budget.limits
    allowed = [True] * len(costs)
    for unit, limit in limits.items():
        amounts = _amounts(costs, unit)
        if budget.when_over == "refuse":
            _check(costs, amounts, unit, limit)
        fitting = _cheapest(amounts, limit)
        allowed = [both and fits for both, fits in zip(allowed, fitting, strict=True)]
    allowed = _with_makers(costs, allowed)
    if not any(allowed):
        least = min(costs, key=lambda cost: float("inf") if cost.held_s is None else cost.held_s)
        raise ConfigError(
            f"{_words(limits)} allows no run: the cheapest, {least.plan.name}, is expected to take {_amount(least)}"
        )
    return allowed


def _with_makers(costs: Sequence[Cost], allowed: Sequence[bool]) -> list[bool]:
    """Leave out too what starts from a run that is left out; such runs come after it."""
    left_out: set[str] = set()
    found = []
    for cost, fits in zip(costs, allowed, strict=True):
        stays = fits and maker_of(cost.plan) not in left_out
        left_out |= set() if stays else {cost.plan.id}
        found.append(stays)
    return found


def left_out_line(costs: Sequence[Cost], allowed: Sequence[bool]) -> str:
    """Name the runs that a budget leaves out; empty where there are none."""
    names = [f"{cost.plan.name} ({_amount(cost)})" for cost, stays in zip(costs, allowed, strict=True) if not stays]
    return f"left out by the budget, {len(names)} of {len(costs)} runs: {', '.join(names)}" if names else ""


def _amounts(costs: Sequence[Cost], unit: str) -> list[float | None]:
    """Return what each run takes of a limit; raises ConfigError where money is limited and a run has no price."""
    if unit == "device_hours":
        return [cost.device_hours for cost in costs]
    unpriced = next(
        (cost for cost in costs if cost.held_s != 0 and cost.plan.config.hardware.price_per_device_hour_usd is None),
        None,
    )
    if unpriced:
        hardware = unpriced.plan.config.hardware.name
        raise ConfigError(
            f"budget.usd: hardware={hardware} has no price: "
            "set hardware.price_per_device_hour_usd, or budget.device_hours instead"
        )
    return [cost.usd for cost in costs]


def _check(costs: Sequence[Cost], amounts: Sequence[float | None], unit: str, limit: float) -> None:
    unknown = [cost for cost, amount in zip(costs, amounts, strict=True) if amount is None]
    if unknown:
        some = (
            f"{len(unknown)} of {len(costs)} runs, such as {unknown[0].plan.name},"
            if len(costs) > 1
            else unknown[0].plan.name
        )
        raise ConfigError(
            f"budget.{unit}={limit:g}: the cost of {some} is unknown; budget.when_over=trim leaves such runs out"
        )
    total = sum(amount or 0.0 for amount in amounts)
    if total > limit:
        taken = f"{_device_hours(total)} ({time_on_devices(costs)})" if unit == "device_hours" else f"{total:,.2f} USD"
        raise ConfigError(
            f"budget.{unit}={limit:g}: the sweep is expected to take {taken}; "
            "budget.when_over=trim keeps the cheapest runs"
        )


def _cheapest(amounts: Sequence[float | None], limit: float) -> list[bool]:
    """Say of each amount whether it fits, when the smallest are taken first; an unknown amount never fits."""
    known = sorted((amount, index) for index, amount in enumerate(amounts) if amount is not None)
    sums = accumulate(amount for amount, _ in known)
    fitting = {index for (_, index), spent in zip(known, sums, strict=True) if spent <= limit}
    return [index in fitting for index in range(len(amounts))]


def _words(limits: dict[str, float]) -> str:
    return " ".join(f"budget.{unit}={limit:g}" for unit, limit in limits.items())


def _amount(cost: Cost) -> str:
    if cost.device_hours is None:
        return "an unknown time"
    money = f", {cost.usd:.2f} USD" if cost.usd is not None else ""
    return f"{_device_hours(cost.device_hours)}, {time_on_devices([cost])}{money}"


def _device_hours(amount: float) -> str:
    """Format device-hours with enough digits for seconds, and without an exponent for months."""
    return f"{amount:.3g} device-hours" if amount < 100 else f"{amount:,.1f} device-hours"
