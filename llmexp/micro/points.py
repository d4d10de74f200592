"""The results of points: the median time of a call on the slowest rank with its 5th and 95th percentile, and rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles

from llmexp.analysis.quantity import Measurement, over_repeats
from llmexp.analysis.window import Repeat
from llmexp.micro.families.base import MicroPoint
from llmexp.micro.plan.micro_plan import MicroPlan
from llmexp.micro.record import CallSample
from llmexp.record.result import ResultPoint
from llmexp.record.samples import RankSummary, read_samples
from llmexp.registry import get_family

DURING, BEFORE = "the run ended while this was measured", "the run ended before this was measured"
# The bytes that a point's calls go through, one set of inputs after the other, before the first set comes again.
DATA = "data_bytes"
MicroRepeat = Repeat[CallSample, RankSummary]


def results(plan: MicroPlan, repeats: Sequence[MicroRepeat]) -> list[ResultPoint]:
    """Return each point's result; one that could not be measured has no metrics and says why."""
    measured = min(len(repeat.measured) for repeat in repeats)
    known = [
        result_of(point, [repeat.measured[index] for repeat in repeats], plan.processes)
        for index, point in enumerate(plan.points[:measured])
    ]
    return known + [
        ResultPoint(params=point.params, metrics={}, problem=BEFORE if number else DURING)
        for number, point in enumerate(plan.points[measured:])
    ]


def read_unfinished(folder: Path, ranks: int) -> MicroRepeat:
    """Read the points that every rank of a repeat measured, whether or not the ranks finished."""
    by_rank: list[list[CallSample]] = []
    for rank in range(ranks):
        try:
            by_rank.append(read_samples(folder / f"samples.{rank}.jsonl", CallSample))
        except (OSError, ValueError):
            by_rank.append([])
    return Repeat((), (), tuple(zip(*by_rank, strict=False)))


def slowest_rank(ranks: Sequence[CallSample]) -> CallSample:
    """Return the sample of the rank with the largest median."""
    return max(ranks, key=lambda sample: sample.median_s)


def result_of(point: MicroPoint, repeats: Sequence[Sequence[CallSample]], ranks: int) -> ResultPoint:
    """Return a point's result over repeats, each with the samples of all ranks."""
    problem = next((sample.problem for samples in repeats for sample in samples if sample.problem), "")
    if problem:
        return ResultPoint(params=point.params, metrics={}, problem=problem)
    slowest = [slowest_rank(samples) for samples in repeats]
    values: dict[str, list[Measurement]] = {}
    for sample in slowest:
        for name, value in _values(point, sample, ranks):
            values.setdefault(name, []).append(value)
    ran = {"what_ran": slowest[0].what_ran} if slowest[0].what_ran else {}
    return ResultPoint(params=point.params | ran, metrics={name: over_repeats(found) for name, found in values.items()})


def _values(point: MicroPoint, sample: CallSample, ranks: int) -> Iterator[tuple[str, Measurement]]:
    family, times_s = get_family(point.family), sample.times_s
    middle_s = median(times_s)
    percentiles_s = quantiles(times_s, n=20, method="inclusive")
    yield "time_s", Measurement(middle_s, tuple(times_s))
    yield "time_p5_s", Measurement(percentiles_s[0])
    yield "time_p95_s", Measurement(percentiles_s[-1])
    yield "samples", Measurement(len(times_s))
    for name, value in family.rates(point, middle_s, ranks).items():
        yield name, Measurement(value)
    if (of_set := family.data_bytes(point)) is not None:
        yield DATA, Measurement(sample.input_sets * of_set)
    for name in ("sm_clock_megahertz", "temperature_celsius"):
        read = getattr(sample, name)
        if read is not None:
            yield name, Measurement(read)
