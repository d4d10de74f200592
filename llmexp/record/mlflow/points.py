"""A run's metrics as points: one value per sample and repeat, the final values, and the machine's load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from llmexp.record.breakdown import read_breakdown
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.reading import read_json_lines
from llmexp.record.result import RunResult, Stability
from llmexp.record.samples import Sample, origin_unix_s, read_samples
from llmexp.registry import get_task

S = TypeVar("S", bound=Sample)


@dataclass(frozen=True)
class Point:
    """One value of one metric; `at_ms` is Unix time."""

    name: str
    value: float
    at_ms: int
    step: int = 0


@dataclass(frozen=True)
class Window:
    """The start and the end of a run, in Unix seconds."""

    start_s: float
    end_s: float


def breakdown_points(folder: RunFolder, window: Window) -> Iterator[Point]:
    """Yield the shares of the profiled steps; none where nothing was traced."""
    found = read_breakdown(folder)
    for name, value in found.figures.items() if found else ():
        yield Point(f"profiled/{name}", value, round(1e3 * window.end_s))


def sample_points(folder: RunFolder, plan: RunPlan, window: Window) -> Iterator[Point]:
    """Yield for each repeat and sample the values of rank 0, and the slowest rank's time and rate.

    Profiled samples are left out. The values that `plan.over_amount` names are yielded once more, with the work done so
    far in place of the sample's number, so that runs with samples of different size share one axis.
    """
    kind = get_task(plan.config.task.name).sample_type
    for repeat in folder.repeats():
        ranks = {path: read_samples(path, kind) for path in sorted(repeat.glob("samples.*.jsonl"))}
        first = next(iter(ranks.values()), [])
        if not first:
            continue
        # In a folder that was copied, the files may be younger than the run.
        origin_s = min(origin_unix_s(next(iter(ranks)), first), window.end_s - first[-1].t_end_s)
        slowest_s = _slowest_s(list(ranks.values()))
        for sample in _measured(first):
            at_ms = round(1e3 * (origin_s + sample.t_end_s))
            for name, value in _values(sample, slowest_s[sample.index], plan):
                yield Point(f"{repeat.name}/{name}", value, at_ms, sample.index)
            for name, value in sample.values.items():
                if name in plan.over_amount:
                    yield Point(
                        f"{repeat.name}/{name}_over_{plan.rate.partition('_per_')[0]}",
                        value,
                        at_ms,
                        round((sample.index + 1) * plan.amount),
                    )


def result_points(result: RunResult | None, window: Window) -> Iterator[Point]:
    """Yield the means with their deviations, the ends of the rate's interval, and the further answers by number."""
    at_ms = round(1e3 * window.end_s)
    for name, metric in (result.metrics if result else {}).items():
        if metric is None:
            continue
        yield Point(name, metric.mean, at_ms)
        for deviation in ("std_between_repeats", "std_within_run"):
            value = getattr(metric, deviation)
            if value is not None:
                yield Point(f"{name}_{deviation}", value, at_ms)
    yield from _interval_points(result.stability if result else None, at_ms)
    for number, point in enumerate(result.points if result else ()):
        yield from (
            Point(f"points/{name}", metric.mean, at_ms, number) for name, metric in point.metrics.items() if metric
        )


def _interval_points(judged: Stability | None, at_ms: int) -> Iterator[Point]:
    for end in ("low", "high"):
        value = getattr(judged, end) if judged else None
        if judged and value is not None:
            yield Point(f"{judged.metric}_{end}", value, at_ms)


def system_points(path: Path, window: Window) -> Iterator[Point]:
    """Yield a machine's samples from the run's time, under the prefix that MLflow uses for system metrics.

    Where the run has several machines, the node's number is in the prefix.
    """
    node = path.suffixes[0].removeprefix(".")
    prefix = f"system/node_{node}" if node.isdigit() else "system"
    during = (sample for sample in read_json_lines(path) if sample["at_s"] >= window.start_s)
    for step, sample in enumerate(during):
        at_ms = round(1e3 * sample["at_s"])
        yield from (
            Point(f"{prefix}/{name}", float(value), at_ms, step)
            for name, value in sample.items()
            if name not in ("at_s", "interval_s")
        )


def series_points(folder: RunFolder, plan: RunPlan, window: Window) -> Iterator[Point]:
    """Yield what the task has beside its samples, with whole seconds since rank 0's origin as steps."""
    task = get_task(plan.config.task.name)
    for repeat in folder.repeats():
        found, samples = list(task.series(repeat)), repeat / "samples.0.jsonl"
        first = read_samples(samples, Sample) if found and samples.exists() else []
        origin_s = origin_unix_s(samples, first) if first else window.start_s
        for at_s, name, value in found:
            at_ms, step = round(1e3 * (origin_s + at_s)), max(0, round(at_s))
            yield Point(f"{repeat.name}/{name}", value, at_ms, step)


def _measured(samples: list[S]) -> list[S]:
    """Return the samples up to the last measured one; those written as warm-up after it were profiled."""
    last = max((index for index, sample in enumerate(samples) if not sample.warmup), default=len(samples) - 1)
    return samples[: last + 1]


def _slowest_s(ranks: list[list[S]]) -> dict[int, float]:
    seconds: dict[int, float] = {}
    for sample in (sample for samples in ranks for sample in samples):
        seconds[sample.index] = max(seconds.get(sample.index, 0.0), sample.t_end_s - sample.t_start_s)
    return seconds


def _values(sample: Sample, seconds: float, plan: RunPlan) -> Iterator[tuple[str, float]]:
    yield from sample.values.items()
    yield f"{plan.sample_name}_time_s", seconds
    if seconds > 0 and plan.amount:
        yield plan.rate, plan.amount / seconds
    if sample.memory_bytes is not None:
        yield "memory_bytes", float(sample.memory_bytes)
