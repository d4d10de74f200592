"""The options of a command line, ranked: what `llmexp advise` prints, and `llmexp.advise` returns."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmexp.advice.goal import DEFAULT, Goal, read_goal
from llmexp.advice.option import Option
from llmexp.advice.ranking import Ranking, ranked
from llmexp.cli.open_plans import open_plans
from llmexp.cli.overrides import print_replaced
from llmexp.errors import ConfigError
from llmexp.launch.preflight import certain_skip
from llmexp.record.digits import GIB, rounded
from llmexp.record.plan import RunPlan
from llmexp.registry import get_task
from llmexp.report.training_budget import EPOCHS
from llmexp.sweep.cost import costs_of
from llmexp.sweep.measuring import folder_of

_GOAL = "goal="


@dataclass(frozen=True)
class Asked:
    """What is wanted of the options besides what the overrides say."""

    goal: Goal
    plain: bool = False
    """Only options that compute what a plain run does."""
    global_batch: int | None = None
    """Samples of a step of all replicas."""

    @property
    def fixed(self) -> Mapping[str, str]:
        """What tasks are told besides the typed keys."""
        return {} if self.global_batch is None else {"batch.global": str(self.global_batch)}


def asked_of(args: Namespace) -> Asked:
    """Take goal= out of the overrides; raises ConfigError for what cannot be asked."""
    goals = [word.removeprefix(_GOAL) for word in args.overrides if word.startswith(_GOAL)]
    args.overrides = [word for word in args.overrides if not word.startswith(_GOAL)]
    for name, value in (("--global-batch", args.global_batch), ("--top", args.top), ("--run", args.run)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} {value}: must be 1 or more")
    if args.training and args.training.kind == EPOCHS:
        raise ConfigError(f"--for epochs={args.training.said}: only a run counts the data's records: write tokens=")
    return Asked(read_goal((goals or [DEFAULT])[-1], args.training), args.plain, args.global_batch)


def advised(args: Namespace, asked: Asked, measured: Sequence[Option] = ()) -> Ranking:
    """Rank what the overrides leave open; raises ConfigError, of one line, where there is nothing to choose.

    Options that were measured just now take the place of the same plans.
    """
    print_replaced(args.overrides)
    known = {option.plan.id for option in measured}
    plans = [plan for plan in _plans(args, asked) if plan.id not in known]
    costs = costs_of(plans, [folder_of(plan) for plan in plans]) if plans else []
    options = [*measured, *map(Option, costs)]
    kept = [option for option in options if not (asked.plain and option.changes)]
    if not kept:
        raise ConfigError("--plain: every option that these words leave changes the mathematics: leave --plain out")
    _check_prices(kept, asked.goal)
    ranking = ranked(kept, asked.goal)
    if ranking.first is None:
        raise ConfigError(f"nothing fits: {_nearest(ranking.misfits[0])}")
    return _within_budget(ranking, asked.goal)


def _plans(args: Namespace, asked: Asked) -> list[RunPlan]:
    """Plan the options of every choice; one that has none is named, and stops the others only where all are such."""
    found: dict[str, RunPlan] = {}
    refused: list[ConfigError] = []
    for choice in open_plans(args):
        task = get_task(choice.typed.config.task.name)
        try:
            found |= {plan.id: plan for plan in task.options(choice.plan_with, choice.fixed | dict(asked.fixed))}
        except ConfigError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    for reason in refused:
        print(f"llmexp: left out: {reason}", file=sys.stderr)
    return list(found.values())


def _check_prices(options: list[Option], goal: Goal) -> None:
    hardware = next((one.plan.config.hardware.name for one in options if one.price_per_hour_usd is None), None)
    budget = options[0].plan.config.budget.usd
    if hardware and (goal.name == "tokens_per_usd" or (budget is not None and goal.training)):
        what = f"goal={goal.name}" if goal.name == "tokens_per_usd" else f"budget.usd={budget:g}"
        raise ConfigError(
            f"{what}: hardware={hardware} has no price: set hardware.price_per_device_hour_usd, what you pay "
            "for an hour of a device"
        )


def _within_budget(ranking: Ranking, goal: Goal) -> Ranking:
    """Leave out what a training would cost too much with; raises ConfigError where nothing is left."""
    assert ranking.first is not None
    limits = ranking.first.plan.config.budget
    if goal.training is None or not (limits.usd or limits.device_hours):
        return ranking
    training = goal.training

    def affordable(option: Option) -> bool:
        cost = option.training(training)
        return (cost.usd or 0.0) <= (limits.usd or float("inf")) and cost.device_hours <= (
            limits.device_hours or float("inf")
        )

    kept = Ranking(goal, [*filter(affordable, ranking.sure)], [*filter(affordable, ranking.perhaps)], ranking.misfits)
    if kept.first is None:
        costs = [option.training(training) for option in [*ranking.sure, *ranking.perhaps]]
        cheapest = min(costs, key=lambda cost: (cost.usd or 0.0) if limits.usd else cost.device_hours)
        raise ConfigError(f"the budget buys no training of {training.words}: the cheapest takes {cheapest.words}")
    return kept


def _nearest(option: Option) -> str:
    """Say what comes nearest, and what it lacks."""
    words, fit, skip = " ".join(option.plan.overrides), option.fit, certain_skip(option.plan)
    if option.ended_badly:
        return f"{words} gave no speed when it ran"
    if fit is None or (fit.need <= fit.capacity and skip):
        return f"{words} comes nearest: {skip.reason.partition(':')[0] if skip else 'its size is not known'}"
    lacks = f"{rounded(fit.need / GIB)} GiB of a device, which has {rounded(fit.capacity / GIB)}"
    return f"{words} comes nearest, and needs {lacks}"
