"""A run's metrics as points: one value per sample and repeat, the final values, and the machine's load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
# Of a rate over time.
WINDOW_S = 5


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
    """Yield the shares of the profiled steps; none where nothing was traced.

    MLflow's page shows prefixes in alphabetical order: curves of repeats come before such single values.
    """
    found = read_breakdown(folder)
    for name, value in found.figures.items() if found else ():
        yield Point(f"step_profile/{name}", value, round(1e3 * window.end_s))


def sample_points(folder: RunFolder, plan: RunPlan, window: Window) -> Iterator[Point]:
    """Yield for each repeat and sample the values of rank 0, and the slowest rank's time and rate.

    Profiled samples are left out.
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
        rates = RateOverTime(repeat.name, plan)
        for sample in _measured(first):
            at_s = origin_s + sample.t_end_s if sample.at_s is None else sample.at_s
            yield from step_points(sample, slowest_s[sample.index], at_s, repeat.name, plan)
            yield from rates.add(sample, at_s)


def step_points(sample: Sample, slowest_s: float, at_s: float, repeat: str, plan: RunPlan) -> Iterator[Point]:
    """Yield what one sample of rank 0 has, at the Unix time of its end.

    The values that `plan.over_amount` names are yielded once more, with the work done so far in place of the sample's
    number, so that runs with samples of different size share one axis.
    """
    at_ms = round(1e3 * at_s)
    for name, value in _values(sample, slowest_s, plan):
        yield Point(f"{repeat}/{name}", value, at_ms, sample.index)
    unit = plan.rate.partition("_per_")[0]
    for name in plan.over_amount:
        if name in sample.values:
            done = round((sample.index + 1) * plan.amount)
            yield Point(f"{repeat}/{name}_over_{unit}", sample.values[name], at_ms, done)


class RateOverTime:
    """The rate of a repeat, where nobody knows beforehand how much work a sample is, as with requests.

    It has a value for every 5 s: what ended in them, divided by 5.
    """

    def __init__(self, repeat: str, plan: RunPlan) -> None:
        self._names = (f"{repeat}/{plan.rate}", f"{repeat}/{plan.sample_name}s_per_s")
        self._is_told = bool(plan.rate) and not plan.amount
        self._done, self._windows = (0.0, 0), 0

    def add(self, sample: Sample, at_s: float) -> Iterator[Point]:
        """Take the next sample, which ended at that Unix time, and yield the rates of the windows that are over."""
        while self._is_told and sample.t_end_s >= (self._windows + 1) * WINDOW_S:
            self._windows += 1
            end_s = self._windows * WINDOW_S
            at_ms = round(1e3 * (at_s - sample.t_end_s + end_s))
            for name, done in zip(self._names, self._done, strict=True):
                yield Point(name, done / WINDOW_S, at_ms, end_s)
            self._done = (0.0, 0)
        self._done = (self._done[0] + sample.amount, self._done[1] + 1)


def result_points(result: RunResult | None, window: Window) -> Iterator[Point]:
    """Yield the means with their deviations, and the ends of the rate's interval."""
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


def predicted_points(plan: RunPlan, result: RunResult | None, window: Window) -> Iterator[Point]:
    """Yield the measured over the predicted rate, where the run has both."""
    rate = result.metrics.get(plan.rate) if result else None
    if rate and plan.predicted:
        yield Point("x_predicted", rate.mean / plan.predicted.rate, round(1e3 * window.end_s))


def answer_points(result: RunResult | None, window: Window) -> Iterator[Point]:
    """Yield the further answers of a run that has several, with their numbers as steps."""
    at_ms = round(1e3 * window.end_s)
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
    during = (sample for sample in read_json_lines(path) if sample["at_s"] >= window.start_s)
    for step, sample in enumerate(during):
        yield from machine_points(path, sample, step)


def machine_points(path: Path, sample: Mapping[str, float], step: int) -> Iterator[Point]:
    """Yield the values of one line of a machine's samples."""
    node = path.suffixes[0].removeprefix(".")
    prefix = f"system/node_{node}" if node.isdigit() else "system"
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
        origin_s = _origin_unix_s(samples, first) if first else window.start_s
        yield from (told_point(repeat.name, told, origin_s) for told in found)


def told_point(repeat: str, told: tuple[float, str, float], origin_s: float) -> Point:
    """Return what a task told beside its samples: when, by rank 0's clock, its name and value."""
    at_s, name, value = told
    return Point(f"{repeat}/{name}", value, round(1e3 * (origin_s + at_s)), max(0, round(at_s)))


def _origin_unix_s(path: Path, samples: list[Sample]) -> float:
    """Return the Unix time from which a repeat counts, by its first sample where that says its time."""
    return origin_unix_s(path, samples if samples[0].at_s is None else samples[:1])


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
