"""The results of load points: throughput, latencies from when requests were due, and what the client itself costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from llmexp.analysis.quantity import Measurement, over_repeats
from llmexp.analysis.window import Repeat, read_repeat
from llmexp.errors import RecordError
from llmexp.record.result import Metric, ResultPoint
from llmexp.record.samples import read_samples
from llmexp.serving.analysis.load_judgment import in_order, why_no_figures
from llmexp.serving.analysis.load_window import LoadWindow
from llmexp.serving.analysis.percentiles import percentile
from llmexp.serving.analysis.request_latency import Objective, goodput_per_s, latencies
from llmexp.serving.plan.probes import read_probes
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.server_samples import ServerSample, read_server_samples, server_samples_path
from llmexp.serving.record.summary import ClientOverhead, ServingSummary
from llmexp.serving.server_values import server_values
from llmexp.serving.verdicts import verdicts

PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True)
class ServingRepeat(Repeat[RequestSample, ServingSummary]):
    """A repeat, with what its server told of itself."""

    server: tuple[ServerSample, ...] = ()
    probes: tuple[LoadPoint, ...] = ()
    """The load points that a search added."""

    def loads(self, plan: ServingPlan) -> list[LoadPoint]:
        """Return the load points that were planned, and those that a search added."""
        return [*plan.points, *self.probes]


def read_serving_repeat(folder: Path, plan: ServingPlan) -> ServingRepeat:
    """Read a repeat that ended well; raises RecordError."""
    found = read_repeat(folder, plan.processes, RequestSample, ServingSummary)
    try:
        server = read_server_samples(server_samples_path(folder))
    except (OSError, ValueError) as error:
        raise RecordError(f"{server_samples_path(folder)} holds no samples of a server: {error}") from None
    return ServingRepeat(found.ranks, found.warmup, found.measured, tuple(server), tuple(read_probes(folder)))


def served(repeats: Sequence[Repeat[Any, Any]]) -> list[ServingRepeat]:
    """Return repeats of this task as what they are."""
    return [repeat for repeat in repeats if isinstance(repeat, ServingRepeat)]


def results(plan: ServingPlan, repeats: Sequence[ServingRepeat]) -> list[ResultPoint]:
    """Return each load point's result; one without a whole answer has no metrics and says why.

    A search takes its own way in each repeat, so that each of its probes has a result of its own.
    """
    found = [_result(plan, point, repeats) for point in plan.points]
    for number, repeat in enumerate(repeats, 1):
        which = {"repeat": number} if len(repeats) > 1 else {}
        for probe in repeat.probes:
            result = _result(plan, probe, [repeat])
            found.append(result.model_copy(update={"params": result.params | which}))
    return found


def requests_of(repeat: ServingRepeat, point: LoadPoint) -> list[RequestSample]:
    """Return the measured requests of a load point in the order in which they were due."""
    return in_order([sample for (sample,) in repeat.measured if sample.point == point.number])


def results_until_now(plan: ServingPlan, folder: Path) -> list[ResultPoint]:
    """Return the results of the load points that were complete, and what became of the requests of the others."""
    every = _read_unfinished(folder)
    # A client that could say why it ended has a record of each request that it had sent.
    told_all = (folder / "failure.0.json").exists() or any(sample.was_at_work for sample in every)
    begun = max((sample.point for sample in every), default=0)
    found = []
    for point in (*plan.points, *read_begun(folder)):
        own = [sample for sample in every if sample.point == point.number and not sample.warmup]
        answered = sum(not sample.problem for sample in own)
        if answered == point.samples or (len(own) == point.samples and point.number < begun):
            found.append(_one(plan, point, own))
            continue
        accounts = _accounts(point, own, told_all)
        found.append(ResultPoint(params=point.params, metrics={}, problem=accounts))
        told_all = True  # a later point has not begun
    return found


def _read_unfinished(folder: Path) -> list[RequestSample]:
    """Read the requests of a repeat that did not end well; none where there is no file."""
    try:
        return read_samples(folder / "samples.0.jsonl", RequestSample)
    except (OSError, ValueError):
        return []


def read_begun(folder: Path) -> list[LoadPoint]:
    """Read the probes that a repeat began though it did not end well; none where they cannot be read."""
    try:
        return read_probes(folder)
    except RecordError:
        return []


def _one(plan: ServingPlan, point: LoadPoint, samples: Sequence[RequestSample]) -> ResultPoint:
    if problem := why_no_figures([samples]):
        return ResultPoint(params=point.params, metrics={}, problem=problem)
    judged = verdicts(point, plan.config.serve.slo, [in_order(samples)])
    return ResultPoint(params=point.params, metrics=_over([dict(values(samples, plan))]), verdicts=judged)


def _accounts(point: LoadPoint, own: Sequence[RequestSample], told_all: bool) -> str:
    """Say what became of every request of a load point that was not complete when the run ended."""
    failed = [sample for sample in own if sample.problem and not sample.was_at_work]
    at_work = sum(sample.was_at_work for sample in own)
    answered, left = len(own) - len(failed) - at_work, point.samples - len(own)
    said = f"the run ended with {answered} of {point.samples} requests answered, {len(failed)} failed"
    if told_all:
        said += f", {at_work} in flight and {left} not sent"
    elif left:
        said += f" and {left} in flight or not sent; the client could no longer say which"
    return f"{said}; the first failure: {failed[0].problem}" if failed else said


def values(samples: Sequence[RequestSample], plan: ServingPlan) -> Iterator[tuple[str, float]]:
    """Yield the metrics of one load point and repeat by name, as far as its answers tell them."""
    whole = [sample for sample in samples if not sample.problem]
    yield "requests", len(samples)
    yield "failed_requests", len(samples) - len(whole)
    if not whole:
        return
    window = LoadWindow.of(samples)
    yield "requests_per_s", window.per_s(len(whole))
    if all(sample.output_tokens is not None for sample in whole):
        output = sum(sample.amount for sample in whole)
        yield "output_tokens_per_s", window.per_s(output)
        yield "output_tokens_per_s_per_device", window.per_s(output) / plan.devices
        yield "total_tokens_per_s", window.per_s(output + sum(sample.asked_prompt_tokens for sample in whole))
    objective = Objective.of(plan.config.serve.slo)
    goodput = goodput_per_s(samples, objective) if objective else None
    if goodput is not None:
        yield "goodput_per_s", goodput
    yield from _latencies(whole)
    if plan.config.serve.turns > 1:
        yield from _turns(whole)


def floor_of(repeat: ServingRepeat, point: LoadPoint) -> ClientOverhead | None:
    """Return what the client measured at this load point against a server that answers at once."""
    return next((floor for floor in repeat.ranks[0].floors if floor.point == point.number), None)


def _latencies(samples: Sequence[RequestSample]) -> Iterator[tuple[str, float]]:
    for kind, times_s in latencies(samples).items():
        if times_s:
            yield f"{kind}_mean_s", fmean(times_s)
            for percent in PERCENTS:
                yield f"{kind}_p{percent}_s", percentile(times_s, percent)


def _turns(samples: Sequence[RequestSample]) -> Iterator[tuple[str, float]]:
    """Yield the time to first token of the first turns, and of the later ones, whose prompts a cache may know."""
    for name, own in (
        ("first_turn", [sample for sample in samples if not sample.turn]),
        ("later_turns", [sample for sample in samples if sample.turn]),
    ):
        if times_s := latencies(own)["ttft"]:
            yield f"{name}_ttft_p50_s", percentile(times_s, 50)
            yield f"{name}_ttft_p99_s", percentile(times_s, 99)


def _result(plan: ServingPlan, point: LoadPoint, repeats: Sequence[ServingRepeat]) -> ResultPoint:
    samples = [requests_of(repeat, point) for repeat in repeats]
    if problem := why_no_figures(samples):
        return ResultPoint(params=point.params, metrics={}, problem=problem)
    pairs = zip(samples, repeats, strict=True)
    found = [
        dict(values(each, plan)) | server_values(each, repeat.server, plan) | _floor(floor_of(repeat, point))
        for each, repeat in pairs
    ]
    judged = verdicts(point, plan.config.serve.slo, samples)
    return ResultPoint(params=point.params, metrics=_over(found), verdicts=judged)


def _floor(floor: ClientOverhead | None) -> dict[str, float]:
    if floor is None:
        return {}
    names = ("requests_per_s", "ttft_p50_s", "end_to_end_p50_s")
    return {f"client_floor_{name}": getattr(floor, name) for name in names}


def _over(repeats: Sequence[dict[str, float]]) -> dict[str, Metric | None]:
    names = dict.fromkeys(name for repeat in repeats for name in repeat)
    each = {name: [Measurement(repeat[name]) if name in repeat else None for repeat in repeats] for name in names}
    return {name: over_repeats(found) for name, found in each.items()}
