"""The table of choices at equal loss: tokens and seconds until a loss, over seeds, beside the baseline's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from llmexp.analysis.inference import Estimate
from llmexp.analysis.many_rows import RowsVerdict
from llmexp.record.digits import rounded
from llmexp.report.columns import Column, ReportTable
from llmexp.report.compare import settings_of
from llmexp.report.signs import doubt_sign
from llmexp.training.analysis.equal_loss import (
    MARGIN,
    SET_AT,
    CostUnit,
    SeedsToLoss,
    cost_to,
    default_loss,
    verdicts_on,
)
from llmexp.training.convergence import SMOOTHED_SHARE, LossCurve
from llmexp.training.report.conclusion import is_disturbed
from llmexp.training.report.converged import NAIVE, asked_losses, loss_curve
from llmexp.training.report.row import TrainingRow

_NOT_THE_CHOICE = ("seed", "measure.repeats")
# These words have a column, or tell the runs of a choice apart.
_NAMED = ("method=", "seed=")
_WORDS: dict[CostUnit, dict[str, str]] = {
    "tokens": {"higher": "more", "lower": "fewer", "within": "same", "unknown": "cannot tell"},
    "seconds": {"higher": "slower", "lower": "faster", "within": "same", "unknown": "cannot tell"},
}


@dataclass(frozen=True)
class LossChoice:
    """The runs of one choice, a seed each."""

    label: str
    rows: Sequence[TrainingRow]
    curves: Sequence[LossCurve]

    @property
    def seeds(self) -> dict[int, LossCurve]:
        """The loss of each seed."""
        return {row.plan.config.seed: curve for row, curve in zip(self.rows, self.curves, strict=True)}

    @property
    def is_timed(self) -> bool:
        """Tell whether the speed of all seeds was measured, not emulated."""
        return all(row.rate for row in self.rows)

    @property
    def rate(self) -> str:
        """The mean tokens/s of all seeds with their sign, or why there is none."""
        rates = [row.rate.mean for row in self.rows if row.rate]
        return f"{rounded(fmean(rates))} {self.sign}".rstrip() if self.is_timed else self.rows[0].state

    @property
    def sign(self) -> str:
        """The gravest sign of doubt among the seeds."""
        return min({doubt_sign(row) for row in self.rows} - {""}, default="")


def equal_loss_tables(rows: Sequence[TrainingRow], loss: float | None) -> list[ReportTable]:
    """Return a table for each training that differs in choices; without a loss only where seeds tell how it varies."""
    tables = []
    for choices in _trainings(rows):
        base = next((one for one in choices if one.rows[0].method == NAIVE), choices[0])
        shared = [one for one in choices if one.seeds.keys() & base.seeds.keys()]
        target = loss or (default_loss(base.curves) if len(base.rows) > 1 and len(shared) > 1 else None)
        if target:
            tables.append(_table(base, shared, target))
    return tables


def _trainings(rows: Sequence[TrainingRow]) -> list[list[LossChoice]]:
    """Return the choices of each training: what was learned from, with all of its seeds."""
    found: dict[str, dict[str, list[tuple[TrainingRow, LossCurve]]]] = {}
    for row in rows:
        curve = None if row.is_control else loss_curve(row)
        if curve:
            found.setdefault(asked_losses(row, seed=False), {}).setdefault(_choice(row), []).append((row, curve))
    return [_of_training(list(choices.values())) for choices in found.values()]


def _choice(row: TrainingRow) -> str:
    settings = settings_of(row.plan)
    return str(sorted((key, value) for key, value in settings.items() if key not in _NOT_THE_CHOICE))


def _of_training(choices: Sequence[Sequence[tuple[TrainingRow, LossCurve]]]) -> list[LossChoice]:
    shared = set[str].intersection(*({*row.words} for runs in choices for row, _ in runs))
    return [_of_seeds(runs, shared) for runs in choices]


def _of_seeds(runs: Sequence[tuple[TrainingRow, LossCurve]], shared: set[str]) -> LossChoice:
    rows, curves = zip(*runs, strict=True)
    own = [word for word in rows[0].words if word not in shared and not word.lstrip("+").startswith(_NAMED)]
    return LossChoice(" ".join([rows[0].method, *own]), rows, curves)


def _table(base: LossChoice, choices: Sequence[LossChoice], loss: float) -> ReportTable:
    found = [_costs(base, one, loss) for one in choices]
    judged = {cost: _judged(base, choices, found, cost) for cost in ("tokens", "seconds")}
    lines = list(zip(choices, found, strict=True))
    goal = f"to loss {loss:g}"
    columns = [
        Column("run", tuple(one.label for one in choices), left=True),
        Column("seeds", tuple(str(len(costs.costs)) for costs in found)),
        Column("tokens/s", tuple(one.rate for one in choices)),
        Column(f"tokens {goal}", tuple(_mean(costs, "tokens") for costs in found)),
        Column("x baseline tokens", judged["tokens"]),
        Column(f"s {goal}", tuple(_mean(costs, "seconds") if one.is_timed else one.rate for one, costs in lines)),
        Column("x baseline s", judged["seconds"]),
    ]
    return ReportTable("At equal loss", columns, _legend(base))


def _costs(base: LossChoice, one: LossChoice, loss: float) -> SeedsToLoss:
    """Return the costs of the seeds that the choice and the baseline share."""
    seeds = sorted(base.seeds.keys() & one.seeds.keys())
    own, baseline = ([cost_to(of.seeds[seed], loss) for seed in seeds] for of in (one, base))
    return SeedsToLoss(own, baseline)


def _mean(costs: SeedsToLoss, cost: CostUnit) -> str:
    """Return the mean with its interval, a single seed's value, or how many seeds did not get there."""
    if costs.reached < len(costs.costs):
        return f"not reached by {len(costs.costs) - costs.reached} of {len(costs.costs)}"
    known = costs.mean(cost)
    return _with_interval(known) if known else rounded(getattr(costs.costs[0], cost))


def _with_interval(known: Estimate) -> str:
    low, high = known.ratio_interval()
    return f"{rounded(known.ratio)} ({rounded(low)} to {rounded(high)})"


def _judged(
    base: LossChoice, choices: Sequence[LossChoice], costs: Sequence[SeedsToLoss], cost: CostUnit
) -> tuple[str, ...]:
    """Return the ratio of each choice over the baseline with its verdict; the baseline has none."""
    asked = [place for place, one in enumerate(choices) if one is not base and (cost == "tokens" or one.is_timed)]
    asked = asked if cost == "tokens" or base.is_timed else []
    told = dict(zip(asked, verdicts_on([costs[place] for place in asked], cost), strict=True))
    return tuple(
        _cell(base, one, costs[place], cost, told[place]) if place in told else "" for place, one in enumerate(choices)
    )


def _cell(base: LossChoice, one: LossChoice, costs: SeedsToLoss, cost: CostUnit, verdict: RowsVerdict) -> str:
    ratio = costs.ratio(cost)
    if ratio is None:
        return ""
    disturbed = cost == "seconds" and any(map(is_disturbed, [*base.rows, *one.rows]))
    word = "disturbed" if disturbed else _WORDS[cost][verdict.answer]
    return f"{_with_interval(ratio)}: {word}"


def _legend(base: LossChoice) -> list[str]:
    final = [curve.final_loss for curve in base.curves if isfinite(curve.final_loss)]
    ended = f", which ends at {fmean(final):.2f}" if final else ""
    return [
        f"to a loss: until the mean of the last {SMOOTHED_SHARE:.0%} of the steps is first at or below it, warm-up "
        f"included; seconds by the measured step time; mean over seeds with its 95 % interval by them",
        f"baseline: {base.label}{ended}; unless --loss is given, the loss is one that all of its seeds reach in "
        f"{SET_AT:.0%} of the tokens",
        f"x baseline: seed by seed; with one error of 5 % over all rows, and a difference only beyond {MARGIN:.0%}; "
        "disturbed: something shifted a speed, and seconds are not judged",
    ]
