"""What speaks against a measurement of a server: other answers, failed requests, and a client as the bottleneck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmexp.analysis.contention import Machine, disturbances
from llmexp.analysis.quantity import Measurement
from llmexp.analysis.stability import interval, missing, too_wide
from llmexp.record.digits import rounded
from llmexp.record.result import Doubt, DoubtKind, Stability
from llmexp.serving.analysis.load_window import LoadWindow
from llmexp.serving.analysis.percentiles import percentile
from llmexp.serving.analysis.request_latency import latencies
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.points import ServingRepeat, floor_of, requests_of

# A client's own share of a latency or a rate that is left out of account.
CLIENTS_SHARE = 0.05
ALONE = "one repeat is one server, so how much servers differ is unknown: set measure.repeats=3"


def judge_serving(
    plan: ServingPlan, repeats: Sequence[ServingRepeat], rates: Sequence[Measurement], machines: Sequence[Machine]
) -> Stability | None:
    """Judge a run by its repeats, its client's floor and its machines; None where no repeat has a rate."""
    if len(rates) < len(repeats):
        return None
    found = interval(rates) if len(rates) > 1 else None
    against = [reason for machine in machines for reason in disturbances(machine)]
    against += dict.fromkeys(doubt for repeat in repeats for doubt in doubts(plan, repeat))
    lacking = [*_without_floors(repeats), *(too_wide(found, plan.rate) if found else [missing(ALONE)])]
    return Stability(
        metric=plan.rate,
        verdict="unstable" if against else "unknown" if lacking else "stable",
        reasons=against or lacking,
        low=max(found.mean - found.half_width, 0.0) if found else None,
        high=found.mean + found.half_width if found else None,
        source="repeats" if found else None,
        other_cores=max((each.other_cores for each in machines if each.other_cores is not None), default=None),
    )


def _without_floors(repeats: Sequence[ServingRepeat]) -> list[Doubt]:
    """Say where the client may have been the bottleneck for all that is known."""
    reasons = dict.fromkeys(repeat.ranks[0].no_floors for repeat in repeats if repeat.ranks[0].no_floors)
    words = [f"client: its own share was not measured: {reason}" for reason in reasons]
    return [Doubt(kind=DoubtKind.CLIENT, words=text) for text in words]


def doubts(plan: ServingPlan, repeat: ServingRepeat) -> Iterator[Doubt]:
    """Yield what speaks against a repeat: its answers, and its load points."""
    quality = repeat.ranks[0].quality
    if quality and quality.is_another_work:
        yield Doubt(kind=DoubtKind.ANSWERS, words=f"answers: {quality.words}, so it did not do the work of its weights")
    for point in repeat.loads(plan):
        yield from (Doubt(kind=DoubtKind.REQUESTS, words=words) for words in _failed(point, repeat))
        yield from (Doubt(kind=DoubtKind.CLIENT, words=words) for words in _client(point, repeat))


def _failed(point: LoadPoint, repeat: ServingRepeat) -> Iterator[str]:
    samples = requests_of(repeat, point)
    problems = [sample.problem for sample in samples if sample.problem]
    if problems:
        yield f"requests: {len(problems)} of {len(samples)} failed at {point}: {problems[0]}"


def _client(point: LoadPoint, repeat: ServingRepeat) -> Iterator[str]:
    """Yield where the client's own time, or its own highest rate, is too near to what was measured."""
    floor, samples = floor_of(repeat, point), requests_of(repeat, point)
    whole = [one for one in samples if not one.problem]
    if floor is None or not whole:
        return
    times_s = latencies(whole)
    for name, own_s in (("ttft", floor.ttft_p50_s), ("end_to_end", floor.end_to_end_p50_s)):
        if not times_s[name]:
            continue
        found_s = percentile(times_s[name], 50)
        if own_s > CLIENTS_SHARE * found_s:
            words = {"ttft": "time to first token", "end_to_end": "end-to-end latency"}[name]
            share = f"{rounded(own_s * 1e3)} of {rounded(found_s * 1e3)} ms"
            yield f"client: {share} of the median {words} at {point} are the client's own"
    rate = LoadWindow.of(samples).per_s(len(whole))
    if point.rate_per_s is None and rate > CLIENTS_SHARE * floor.requests_per_s:
        yield (
            f"client: {rounded(rate)} requests/s at {point}, and it can itself send "
            f"{rounded(floor.requests_per_s)} to a server that answers at once"
        )
