"""What a training budget takes by each measured row: time, device-hours, money and energy, with their interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llmexp.analysis.inference import Estimate, of_repeats
from llmexp.errors import ConfigError
from llmexp.record.digits import rounded
from llmexp.record.duration import duration
from llmexp.report.columns import Column, ReportTable
from llmexp.report.training_budget import EPOCHS, JOULES_A_KWH, TrainingBudget, TrainingCost
from llmexp.training.report.row import TrainingRow

INTERVAL = "95 % interval by the standard deviation between the repeats (Student's t); without one where n is 1"


@dataclass(frozen=True)
class BudgetRow:
    """A training budget by a row that was measured."""

    taken: TrainingCost
    known: Estimate | None
    """How well the rate is known by its repeats; time and money are known as well."""
    kwh: float | None
    tokens_per_usd: float | None

    @property
    def time_interval_s(self) -> tuple[float, float] | None:
        """The shortest and the longest time."""
        return _scaled(self.taken.time_s, self.known)

    @property
    def usd_interval(self) -> tuple[float, float] | None:
        """The least and the most money."""
        return None if self.taken.usd is None else _scaled(self.taken.usd, self.known)


def budget_of(row: TrainingRow, budget: TrainingBudget) -> BudgetRow | None:
    """Return what the training takes by this row's speed; None where it has none, or no epochs where these are asked.

    Tokens are those that are no padding, where the run tells them apart.
    """
    metric = row.metric("epoch_time_s") if budget.kind == EPOCHS else row.metric("real_tokens_per_s") or row.rate
    if metric is None or not metric.mean:
        return None
    time_s = budget.amount * (metric.mean if budget.kind == EPOCHS else 1 / metric.mean)
    price, power = row.plan.config.hardware.price_per_device_hour_usd, row.metric("mean_power_w")
    taken, speed = TrainingCost(time_s, row.processes, price), row.metric("tokens_per_usd")
    kwh = power.mean * time_s / JOULES_A_KWH if power else None
    return BudgetRow(taken, of_repeats(metric), kwh, speed.mean if speed else None)


def check_budget(rows: Sequence[TrainingRow], budget: TrainingBudget) -> None:
    """Raise ConfigError where no row has what the training is stated in."""
    if not any(row.rate for row in rows):
        raise ConfigError(f"--for {budget.kind}={budget.said}: none of these runs has a measured speed")
    if not any(budget_of(row, budget) for row in rows):
        raise ConfigError(
            f"--for {budget.kind}={budget.said}: the data of these runs has no epochs, because synthetic data never "
            f"ends: give tokens, as in --for tokens=300e9"
        )


def budget_table(rows: Sequence[TrainingRow], labels: Sequence[str], budget: TrainingBudget) -> ReportTable:
    """Return the table of the training budget, a line for each row that was measured."""
    found = [(label, one) for row, label in zip(rows, labels, strict=True) if (one := budget_of(row, budget))]
    energies = any(one.kwh is not None for _, one in found)
    lines = [
        "tokens/USD: positions that a USD buys, all devices paid for" * any(one.tokens_per_usd for _, one in found),
        f"from … to …: {INTERVAL}" * any(one.known for _, one in found),
        "kWh: of what the energy counters cover, named below the table of runs" * energies,
    ]
    return ReportTable(f"{budget.words}, by these speeds", _columns(found), [line for line in lines if line])


def budget_record(one: BudgetRow | None) -> dict[str, Any]:
    """Return the CSV's columns of a training budget."""
    times, prices = (one.time_interval_s, one.usd_interval) if one else (None, None)
    return {
        "budget_time_s": one and one.taken.time_s,
        "budget_time_low_s": times and times[0],
        "budget_time_high_s": times and times[1],
        "budget_device_hours": one and one.taken.device_hours,
        "budget_usd": one and one.taken.usd,
        "budget_usd_low": prices and prices[0],
        "budget_usd_high": prices and prices[1],
        "budget_energy_kwh": one and one.kwh,
    }


def _columns(found: Sequence[tuple[str, BudgetRow]]) -> list[Column]:
    columns = [
        Column("run", tuple(label for label, _ in found), left=True),
        Column("time", tuple(duration(one.taken.time_s) for _, one in found)),
        Column("from … to …", tuple(_from_to(one.time_interval_s, duration) for _, one in found), dispensable=3),
        Column("device-hours", tuple(rounded(one.taken.device_hours) for _, one in found)),
        Column("USD", tuple(_number(one.taken.usd) for _, one in found), dispensable=4),
        Column("USD from … to …", tuple(_from_to(one.usd_interval, rounded) for _, one in found), dispensable=2),
        Column("tokens/USD", tuple(_number(one.tokens_per_usd) for _, one in found), dispensable=1),
        Column("kWh", tuple(_number(one.kwh) for _, one in found), dispensable=4),
    ]
    return [column for column in columns if not column.dispensable or any(column.cells)]


def _from_to(ends: tuple[float, float] | None, words: Callable[[float], str]) -> str:
    return f"{words(ends[0])} to {words(ends[1])}" if ends else ""


def _number(value: float | None) -> str:
    return "" if value is None else rounded(value)


def _scaled(value: float, known: Estimate | None) -> tuple[float, float] | None:
    """Return both ends of a value that is known as well as a rate."""
    if known is None:
        return None
    low, high = known.ratio_interval()
    return value * low / known.ratio, value * high / known.ratio
