"""The results of load points: throughput, latencies from when requests were due, and what the client itself costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from llmexp.analysis.percentiles import percentile
from llmexp.analysis.quantity import Measurement, over_repeats
from llmexp.analysis.request_latency import goodput_per_s, latencies
from llmexp.analysis.window import Repeat, read_repeat
from llmexp.errors import RecordError
from llmexp.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.record.requests import RequestSample
from llmexp.record.result import Metric, ResultPoint
from llmexp.record.samples import read_samples
from llmexp.record.server_samples import ServerSample, read_server_samples, server_samples_path
from llmexp.record.serving import ClientFloor, ServingSummary
from llmexp.schema.serving import SloConfig
from llmexp.tasks.serving.objective import objective
from llmexp.tasks.serving.server_values import server_values
from llmexp.tasks.serving.verdicts import verdicts

PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True)
class ServingRepeat(Repeat[RequestSample, ServingSummary]):
    """A repeat, with what its server told of itself."""

    server: tuple[ServerSample, ...] = ()


def read_serving_repeat(folder: Path, plan: ServingPlan) -> ServingRepeat:
    """Read a repeat that ended well; raises RecordError."""
    found = read_repeat(folder, plan.processes, RequestSample, ServingSummary)
    try:
        server = read_server_samples(server_samples_path(folder))
    except (OSError, ValueError) as error:
        raise RecordError(f"{server_samples_path(folder)} holds no samples of a server: {error}") from None
    return ServingRepeat(found.ranks, found.warmup, found.measured, tuple(server))


def served(repeats: Sequence[Repeat[Any, Any]]) -> list[ServingRepeat]:
    """Return repeats of this task as what they are."""
    return [repeat for repeat in repeats if isinstance(repeat, ServingRepeat)]


def results(plan: ServingPlan, repeats: Sequence[ServingRepeat]) -> list[ResultPoint]:
    """Return each load point's result; one without a whole answer has no metrics and says why."""
    return [_result(plan, point, [requests_of(repeat, point) for repeat in repeats], repeats) for point in plan.points]


def requests_of(repeat: ServingRepeat, point: LoadPoint) -> list[RequestSample]:
    """Return the measured requests of a load point in the order in which they were due."""
    found = [sample for (sample,) in repeat.measured if sample.point == point.number]
    return sorted(found, key=lambda sample: (sample.scheduled_s, sample.index))


def results_until_now(plan: ServingPlan, folder: Path) -> list[ResultPoint]:
    """Return the results of the load points that were complete, and what became of the requests of the others."""
    every = _read_unfinished(folder)
    # A client that could say why it ended has a record of each request that it had sent.
    told_all = (folder / "failure.0.json").exists() or any(sample.was_at_work for sample in every)
    begun = max((sample.point for sample in every), default=0)
    found = []
    for point in plan.points:
        own = [sample for sample in every if sample.point == point.number and not sample.warmup]
        answered = sum(not sample.problem for sample in own)
        if answered == point.requests or (len(own) == point.requests and point.number < begun):
            found.append(_one(plan, point, own))
            continue
        accounts = _accounts(point, own, told_all)
        found.append(ResultPoint(params=point.params, metrics={}, problem=accounts))
        told_all = True  # a later point has not begun
    return found


def problem_of(samples: Sequence[RequestSample]) -> str:
    """Say why a load point of one repeat has no figures, or return an empty string."""
    return _unanswered([samples]) or _other_work([samples])


def _read_unfinished(folder: Path) -> list[RequestSample]:
    """Read the requests of a repeat that did not end well; none where there is no file."""
    try:
        return read_samples(folder / "samples.0.jsonl", RequestSample)
    except (OSError, ValueError):
        return []


def _one(plan: ServingPlan, point: LoadPoint, samples: Sequence[RequestSample]) -> ResultPoint:
    if problem := problem_of(samples):
        return ResultPoint(params=point.params, metrics={}, problem=problem)
    return ResultPoint(params=point.params, metrics=_over([dict(values(samples, plan))]))


def _accounts(point: LoadPoint, own: Sequence[RequestSample], told_all: bool) -> str:
    """Say what became of every request of a load point that was not complete when the run ended."""
    failed = [sample for sample in own if sample.problem and not sample.was_at_work]
    at_work = sum(sample.was_at_work for sample in own)
    answered, left = len(own) - len(failed) - at_work, point.requests - len(own)
    said = f"the run ended when {answered} of {point.requests} requests were answered, {len(failed)} had failed"
    if told_all:
        said += f", {at_work} were at work and {left} were not sent yet"
    elif left:
        said += f" and {left} were at work or not sent yet, which the client could not tell any more"
    return f"{said}; the first failure: {failed[0].problem}" if failed else said


def values(samples: Sequence[RequestSample], plan: ServingPlan) -> Iterator[tuple[str, float]]:
    """Yield the metrics of one load point and repeat by name, as far as its answers tell them."""
    whole = [sample for sample in samples if not sample.problem]
    yield "requests", len(samples)
    yield "failed_requests", len(samples) - len(whole)
    if not whole:
        return
    seconds = max(sample.end_s for sample in whole) - min(sample.scheduled_s for sample in samples)
    yield "requests_per_s", len(whole) / seconds
    if all(sample.output_tokens is not None for sample in whole):
        output = sum(sample.amount for sample in whole)
        yield "output_tokens_per_s", output / seconds
        yield "output_tokens_per_s_per_device", output / seconds / plan.devices
        yield "total_tokens_per_s", (output + sum(sample.asked_prompt_tokens for sample in whole)) / seconds
    if (slo := plan.config.serve.slo) != SloConfig():
        yield "goodput_per_s", goodput_per_s(samples, objective(slo))
    yield from _latencies(whole)


def floor_of(repeat: ServingRepeat, point: LoadPoint) -> ClientFloor | None:
    """Return what the client measured at this load point against a server that answers at once."""
    return next((floor for floor in repeat.ranks[0].floors if floor.point == point.number), None)


def _latencies(samples: Sequence[RequestSample]) -> Iterator[tuple[str, float]]:
    for kind, times_s in latencies(samples).items():
        if times_s:
            yield f"{kind}_mean_s", fmean(times_s)
            for percent in PERCENTS:
                yield f"{kind}_p{percent}_s", percentile(times_s, percent)


def _result(
    plan: ServingPlan, point: LoadPoint, samples: Sequence[Sequence[RequestSample]], repeats: Sequence[ServingRepeat]
) -> ResultPoint:
    if problem := _unanswered(samples) or _other_work(samples):
        return ResultPoint(params=point.params, metrics={}, problem=problem)
    pairs = zip(samples, repeats, strict=True)
    found = [
        dict(values(each, plan)) | server_values(each, repeat.server, plan) | _floor(floor_of(repeat, point))
        for each, repeat in pairs
    ]
    judged = verdicts(point, plan.config.serve.slo, samples)
    return ResultPoint(params=point.params, metrics=_over(found), verdicts=judged)


def _unanswered(samples: Sequence[Sequence[RequestSample]]) -> str:
    for repeat in samples:
        problems = [sample.problem for sample in repeat if sample.problem]
        if len(problems) == len(repeat):
            return f"no request was answered wholly: {problems[0] if problems else 'none was sent'}"
    return ""


def _other_work(samples: Sequence[Sequence[RequestSample]]) -> str:
    """Say how many answers are not what was asked for; figures of other work would mislead."""
    each = [sample for repeat in samples for sample in repeat]
    odd = [sample.differences for sample in each if sample.differences]
    return f"{len(odd)} of {len(each)} answers are not what was asked for: {odd[0][0]}" if odd else ""


def _floor(floor: ClientFloor | None) -> dict[str, float]:
    if floor is None:
        return {}
    names = ("requests_per_s", "ttft_p50_s", "end_to_end_p50_s")
    return {f"client_floor_{name}": getattr(floor, name) for name in names}


def _over(repeats: Sequence[dict[str, float]]) -> dict[str, Metric | None]:
    names = dict.fromkeys(name for repeat in repeats for name in repeat)
    each = {name: [Measurement(repeat[name]) if name in repeat else None for repeat in repeats] for name in names}
    return {name: over_repeats(found) for name, found in each.items()}
