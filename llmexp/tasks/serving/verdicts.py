"""What load points show together: whether the server kept up, whether requests kept their objective, and the knee."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.analysis.attainment import attainment
from llmexp.analysis.backlog import Load
from llmexp.analysis.knee import Knee, holds, knee
from llmexp.analysis.saturation import saturation
from llmexp.plan.serving_plan import LoadPoint
from llmexp.record.requests import RequestSample
from llmexp.record.result import PointVerdict, ResultPoint
from llmexp.schema.serving import SloConfig
from llmexp.tasks.serving.objective import objective

LOAD, OBJECTIVE = "load", "objective"
Repeats = Sequence[Sequence[RequestSample]]


def verdicts(point: LoadPoint, slo: SloConfig, repeats: Repeats) -> dict[str, PointVerdict]:
    """Judge an open load of a constant rate by its requests, repeat by repeat, in the order in which they were due."""
    if point.rate_per_s is None or point.follows != "rate":
        return {}
    kept_up = saturation([Load.of(samples) for samples in repeats])
    found = {LOAD: PointVerdict(answer=kept_up.verdict, reasons=kept_up.reasons)}
    if slo != SloConfig():
        used = [[objective(slo).used_by(sample) for sample in samples] for samples in repeats]
        kept = attainment(used)
        found[OBJECTIVE] = PointVerdict(answer=kept.verdict, reasons=kept.reasons)
    return found


def knee_of(points: Sequence[ResultPoint]) -> Knee | None:
    """Return the rates between which the server stops to keep up, and within its objective where there is one.

    None where no load point was judged.
    """
    answers = [(float(point.params["rate_per_s"]), _holds(point)) for point in points if LOAD in point.verdicts]
    return knee(answers) if answers else None


def _holds(point: ResultPoint) -> bool | None:
    return holds(verdict.answer for verdict in point.verdicts.values())
