"""What a plan answers first: whether it fits, how fast it is expected to be, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.errors import ConfigError
from llmexp.launch.preflight import certain_skip
from llmexp.record.digits import GIB, rounded
from llmexp.record.memory import Fit
from llmexp.record.plan import RunPlan
from llmexp.record.predicted import TOO_FEW, PredictedLoad, Prediction
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import get_task
from llmexp.report.training_budget import EPOCHS, TrainingBudget, TrainingCost
from llmexp.sweep.cost import Cost


def fit_of_plan(plan: RunPlan) -> Fit | None:
    """Return how a run fits its devices; None where its task does not say, or sizes are not known."""
    return get_task(plan.config.task.name).fit(plan)


def answer(cost: Cost) -> dict[str, str]:
    """Return the first lines of a plan, by label; an empty line has nothing to say."""
    plan, skip = cost.plan, certain_skip(cost.plan)
    fits = "" if is_moot(plan, skip) else _fits(plan)
    predicted = "" if skip else _predicted(cost)
    return {"fits": fits, "speed": _speed(cost), "predicted": predicted, "skipped": short_reason(skip)}


def is_moot(plan: RunPlan, skip: Skip | None) -> bool:
    """Tell whether nobody learns from whether a run fits: it is skipped, and not for its memory."""
    fit = fit_of_plan(plan)
    return skip is not None and not (fit and fit.certain)


def short_reason(skip: Skip | None) -> str:
    """Return a reason for a skip without the arithmetic of memory, which a plan shows elsewhere; "" for none."""
    if skip is None or skip.code is not SkipCode.MEMORY:
        return str(skip or "")
    return f"{skip.reason.partition(': ')[0]}; force=true starts it"


def budget_cost(cost: Cost, budget: TrainingBudget) -> TrainingCost | None:
    """Return what a training budget takes at the expected speed of each device; None where that is not known."""
    plan, rate = cost.plan, expected_rate(cost)
    if budget.kind == EPOCHS or rate is None:
        return None
    price = plan.config.hardware.price_per_device_hour_usd
    return TrainingCost(budget.amount / rate, plan.devices, price)


def expected_rate(cost: Cost) -> float | None:
    """Return the rate of all devices: that of such a run, else the predicted one, else that of another batch."""
    speed, predicted = cost.speed, cost.plan.predicted
    if predicted and (speed is None or speed.elsewhere):
        return predicted.rate
    return speed.per_device * cost.plan.devices if speed else None


def of_device(cost: Cost) -> tuple[str, str, str]:
    """Return the predicted tokens/s of one device and the ends of its 90 % interval; empty where there is none."""
    predicted, devices = cost.plan.predicted, cost.plan.devices
    if predicted is None:
        return "", "", ""
    rates = (predicted.rate, predicted.low, predicted.high)
    return tuple(rounded(rate / devices) for rate in rates)  # type: ignore[return-value]


def check_budget(plans: Sequence[RunPlan], budget: TrainingBudget) -> None:
    """Raise ConfigError where a plan cannot say what the training takes, whatever its speed."""
    asked = f"--for {budget.kind}={budget.said}"
    if budget.kind == EPOCHS:
        raise ConfigError(
            f"{asked}: only a run counts the data's records: measure one, then llmexp report {asked}; "
            "a plan takes tokens, as in --for tokens=300e9"
        )
    if not all(get_task(plan.config.task.name).trains for plan in plans):
        raise ConfigError(f"{asked}: applies to training only, and task={plans[0].config.task.name} does not")


def budget_words(cost: Cost, budget: TrainingBudget | None) -> str:
    """Say what a training budget takes; empty where none is asked for."""
    if budget is None:
        return ""
    taken = budget_cost(cost, budget)
    return f"{budget.words}: " + (
        f"about {taken.words}, at that speed" if taken else "unknown, because the speed is unknown"
    )


def sizes(fit: Fit) -> str:
    """Return the least and the most that is needed, and what there is, in GiB."""
    most = f" to {_gib(fit.most)}" if _gib(fit.most) != _gib(fit.need) else ""
    return f"needs {_gib(fit.need)}{most} of {_gib(fit.capacity)} GiB"


def _fits(plan: RunPlan) -> str:
    fit = fit_of_plan(plan)
    if fit is None:
        return ""
    where = "a rank" if plan.config.hardware.device == "cpu" else "a device"
    why = {True: "; state alone is more", False: "; it would be tried anyway"}[fit.certain]
    if fit.verdict != "no":
        return f"{fit.verdict} ({sizes(fit)} {where})"
    changes = get_task(plan.config.task.name).fitting(plan)
    instead = f"; fits with {', or '.join(changes)}" if changes else ""
    return f"no ({sizes(fit)} {where}){why}{instead}"


def _speed(cost: Cost) -> str:
    speed, plan = cost.speed, cost.plan
    if speed is None or (speed.elsewhere and plan.predicted):
        return ""
    device = "rank" if plan.config.hardware.device == "cpu" else "GPU"
    return f"about {rounded(speed.per_device)} {plan.rate_unit} a {device}, by {speed.by}"


def _predicted(cost: Cost) -> str:
    rate, low, high = of_device(cost)
    if cost.plan.predicted is None:
        return ""
    found, device = cost.plan.predicted, "rank" if cost.plan.config.hardware.device == "cpu" else "GPU"
    ends = f"{low} to {high}{' in 9 of 10' if found.tells_share else f'; {TOO_FEW}'}"
    whole = f"{rate} {cost.plan.rate_unit} a {device} ({ends}), by {found.source}; most time: {found.most}"
    return "\n".join([whole, *map(_load, found.loads), *_saturation(found)])


def _load(of: PredictedLoad) -> str:
    tpot, ttft = (
        f"{_ms(mean)} ms ({_ms(low)} to {_ms(high)})"
        for mean, low, high in ((of.tpot_s, of.tpot_low_s, of.tpot_high_s), (of.ttft_s, of.ttft_low_s, of.ttft_high_s))
    )
    waits = ", more than it sustains" if of.saturated and "/s" in of.load else ""
    # Outputs of one token have no time per token.
    gaps = f" TPOT {tpot}," if of.tpot_s else ""
    return f"{of.load}: {rounded(of.rate)} tokens/s,{gaps} TTFT {ttft}{waits}"


def _saturation(of: Prediction) -> list[str]:
    return [f"saturation near {rounded(of.saturation_per_s)} requests/s"] if of.saturation_per_s else []


def _ms(seconds: float) -> str:
    return rounded(1000 * seconds)


def _gib(size: int) -> str:
    return f"{size / GIB:.3g}" if size < 1000 * GIB else rounded(size / GIB)
