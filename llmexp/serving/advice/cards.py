"""The fewest cards that sustain the rates of serve.rate within serve.slo, by prediction."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.record.predicted import PredictedLoad
from llmexp.serving.advice.open_keys import DP
from llmexp.serving.advice.trials import ServedTrial, tried
from llmexp.serving.config.run import SloConfig
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.predict.prediction import request_of

# More copies than these are no longer one person's server.
MOST_COPIES = 4096
# A predicted load's lower end is the load itself where it is sustained for sure.
_ALL = 0.999


@dataclass(frozen=True)
class CardsForRate:
    """Cards of one layout: as predicted, and so many that the 90 % intervals keep the objective too."""

    devices: int
    copies: int
    sure_devices: int | None
    """None where no number of cards is enough at the intervals' ends."""


def is_rated(plan: ServingPlan) -> bool:
    """Tell whether all loads come at rates that a server has to sustain."""
    return bool(plan.points) and not plan.config.serve.search and all(point.rate_per_s for point in plan.points)


def is_kept(trial: ServedTrial, *, surely: bool = False) -> bool:
    """Tell whether a trial sustains its rates and its requests keep serve.slo, surely also at the intervals' worse end.

    Predictions are of the typical request; a slower one may miss what it keeps.
    """
    points = [point for point in trial.plan.points if point.follows == "rate"]
    loads = zip(points, trial.predicted.loads, strict=True)
    return all(_keeps(point, load, trial.plan, surely=surely) for point, load in loads)


def fewest_copies(plan: ServingPlan, most: int = MOST_COPIES, *, surely: bool = False) -> int | None:
    """Return the fewest copies of the model that sustain all rates within the objective; None where `most` do not.

    More copies share the load, so that each of them only gets faster.
    """
    if not _kept_by(plan, most, surely):
        return None
    few, enough = 0, most
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if _kept_by(plan, middle, surely) else (middle, enough)
    return enough


def cards_for_rate(plan: ServingPlan) -> CardsForRate | None:
    """Return the fewest cards of the plan's own layout, on however many machines; None where no number is enough.

    The copies share nothing but the load, so that several machines are several of these servers.
    """
    each, copies, sure = plan.config.parallelism.tp, fewest_copies(plan), fewest_copies(plan, surely=True)
    return CardsForRate(each * copies, copies, each * sure if sure else None) if copies else None


def _kept_by(plan: ServingPlan, copies: int, surely: bool) -> bool:
    found = tried(plan, {DP: copies})
    return found is not None and is_kept(found, surely=surely)


def _keeps(point: LoadPoint, load: PredictedLoad, plan: ServingPlan, *, surely: bool) -> bool:
    if point.rate_per_s and (load.saturated or (surely and load.low < _ALL * load.rate)):
        return False
    tpot_s, ttft_s = (load.tpot_high_s, load.ttft_high_s) if surely else (load.tpot_s, load.ttft_s)
    later = max(request_of(plan).output - 1, 0.0)
    return _within(plan.config.serve.slo, ttft_s, tpot_s, ttft_s + later * tpot_s)


def _within(slo: SloConfig, ttft_s: float, tpot_s: float, end_to_end_s: float) -> bool:
    limits = ((slo.ttft_s, ttft_s), (slo.tpot_s, tpot_s), (slo.end_to_end_s, end_to_end_s))
    return all(limit is None or taken <= limit for limit, taken in limits)
