"""What load points show together: whether the server kept up, whether requests kept their objective, and saturation."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.record.result import PointVerdict, ResultPoint
from llmexp.serving.analysis.load_judgment import LOAD, Repeats, judgment, why_never_known
from llmexp.serving.analysis.rate_search import Found, RateSearch
from llmexp.serving.analysis.request_latency import Objective
from llmexp.serving.analysis.saturation_point import RateAnswer, SaturationPoint, find_saturation, holds
from llmexp.serving.config.load import RateSearchConfig
from llmexp.serving.config.run import SloConfig
from llmexp.serving.plan.serving_plan import LoadPoint


def verdicts(point: LoadPoint, slo: SloConfig, repeats: Repeats) -> dict[str, PointVerdict]:
    """Judge an open load by its requests, repeat by repeat, in the order in which they were due.

    A trace is judged over its whole length, by whether the server kept up; of its objective no rate of error is known.
    A ramp is not judged: whether a server keeps up changes while it lasts.
    """
    if point.rate_per_s is None or point.follows == "ramp":
        return {}
    return judgment(repeats, Objective.of(slo) if point.follows == "rate" else None)


def saturation_of(points: Sequence[ResultPoint]) -> SaturationPoint | None:
    """Return the rates between which the server stops to keep up, and within its objective where there is one.

    None where no load point was judged.
    """
    answers = _answers(points)
    return find_saturation(answers) if answers else None


def search_end(points: Sequence[ResultPoint], search: RateSearchConfig) -> str:
    """Say where a search stands after its probes, and why it ended; the same answers always lead to the same end."""
    if problem := next((point.problem for point in points if point.problem), ""):
        return f"ended after probe {len(points)}: {problem}"
    answers = _answers(points)
    if reason := why_never_known(points[-1].verdicts):
        return str(Found(find_saturation(answers), reason))
    step = RateSearch(search.start_per_s, search.tolerance, search.most_probes).step(answers)
    if isinstance(step, Found):
        return str(step)
    return f"did not end: after {len(points)} probes {step:g} requests/s would have been next"


def _answers(points: Sequence[ResultPoint]) -> list[RateAnswer]:
    """Return the answers at constant rates: that of a trace is only a mean."""
    judged = [point for point in points if LOAD in point.verdicts and point.params["load"] == "open"]
    return [(float(point.params["rate_per_s"]), _holds(point)) for point in judged]


def _holds(point: ResultPoint) -> bool | None:
    return holds(verdict.answer for verdict in point.verdicts.values())
