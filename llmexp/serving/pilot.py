"""The pilot of a run of task=serve: the same server under the same loads, with few requests of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmexp.record.result import Metric, RunResult
from llmexp.serving.plan.draws import DrawSeries
from llmexp.serving.plan.lengths import LengthDraw
from llmexp.serving.plan.request_trace import load_trace
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.planning import MOST_AT_ONCE

# A single request would be one reading of a server's speed.
FEWEST_REQUESTS = 4
# A pilot is worth its time where the run's requests take so many times as long.
TIMES_AS_LONG = 3


def pilot(plan: ServingPlan) -> ServingPlan | None:
    """Return a run of the same server whose loads have few requests each; loads at a rate are left out.

    A server has more tokens a second the more requests are at work. So a load has as many requests as are at work at a
    time: its concurrency, and of a burst as many as the server takes (engine.options.max_sequences, else MOST_AT_ONCE).
    Where outputs differ in length it has twice as many, so that others are at work while the longest one ends. The
    warm-up before a load stays as it is.

    None for a search, whose probes are not known before; for a profile; where several machines would have to meet; and
    for a server that runs already, whose cache would know prompts that are measured later. None too, unless a budget
    has to be kept, where the pilot's requests would take more than a third of the time of the run's.
    """
    config = plan.config
    if config.serve.search or config.serve.profile or plan.server.address or config.hardware.nodes > 1:
        return None
    whole = plan.unpaced
    few = [point.model_copy(update={"requests": _requests(plan, point)}) for point in whole]
    pays = config.measure.repeats * _rounds(plan, whole) >= TIMES_AS_LONG * _rounds(plan, few)
    if not few or not (pays or config.budget.limits):
        return None
    once = config.measure.model_copy(update={"repeats": 1, "order": "run_by_run"})
    # Its answers are those of the run.
    serve = config.serve.model_copy(update={"quality": None})
    found = {"label": "pilot", "points": few, "config": config.model_copy(update={"measure": once, "serve": serve})}
    return plan.model_copy(update=found)


def samples_s(plan: ServingPlan, seen: RunResult) -> float:
    """Return the seconds that a repeat's requests take at the rates of a pilot's loads; 0 where one has no rate.

    They take about as long at most: the pilot's loads begin and end as the run's do, and have less in between. Their
    warm-up is left out, because the pilot has the same. A load at a rate takes as long as its requests are sent, or as
    they would take in the fastest of the pilot's loads, if that is longer.
    """
    loads = [each.metrics for each in seen.points]
    found = [_seconds(plan, point, metrics) for point, metrics in zip(plan.unpaced, loads, strict=True)]
    if not all(found):
        return 0.0
    return sum(found) + sum(
        max(point.load_s, min(_seconds(plan, point, metrics) for metrics in loads))
        for point in plan.points
        if point.load_s
    )


def _requests(plan: ServingPlan, point: LoadPoint) -> int:
    serve = plan.config.serve
    are_as_long = serve.output.kind == "fixed" and not serve.texts and point.follows != "trace"
    return min(point.requests, max(FEWEST_REQUESTS, _at_once(plan, point) * (1 if are_as_long else 2)))


def _at_once(plan: ServingPlan, point: LoadPoint) -> int:
    """Return the most requests, or conversations, that the server works at: the others wait."""
    given = plan.config.engine.options.get("max_sequences")
    return min(point.at_work, given * plan.config.parallelism.dp if isinstance(given, int) else MOST_AT_ONCE)


def _rounds(plan: ServingPlan, points: Sequence[LoadPoint]) -> float:
    """Return how often the server gets as many requests as it works at, over all these loads."""
    return sum(point.requests / _at_once(plan, point) for point in points)


def _seconds(plan: ServingPlan, point: LoadPoint, metrics: Mapping[str, Metric | None]) -> float:
    """Return the seconds of a load by its output tokens, or by its requests where the tokens were not counted.

    0 where no request was answered.
    """
    rate, tokens = metrics.get("output_tokens_per_s"), _output_tokens(plan, point)
    if rate and rate.mean and tokens:
        return tokens / rate.mean
    rate = metrics.get("requests_per_s")
    return point.samples / rate.mean if rate and rate.mean else 0.0


def _output_tokens(plan: ServingPlan, point: LoadPoint) -> int:
    """Return the output tokens that a load's measured requests ask for; 0 where they are those of recorded answers."""
    serve, series = plan.config.serve, DrawSeries(plan.config.seed, point.number)
    if serve.texts and serve.texts.answers:
        return 0
    if point.follows == "trace" and serve.trace:
        traced = load_trace(serve.trace, serve.requests).requests
        return sum(request.output_tokens for request in traced[: point.requests])
    outputs = LengthDraw.of(serve.output)
    return sum(outputs.at(series, number, turn) for number in range(point.requests) for turn in range(point.turns))
