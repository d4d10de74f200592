"""A run's metrics as points: a value a step and repeat, the final values, and the machine's load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmexp.record.folder import RunFolder, read_json_lines
from llmexp.record.result import RunResult, StepSample, origin_unix_s, read_samples


@dataclass(frozen=True)
class Point:
    """One value of one metric. at_ms is Unix time."""

    name: str
    value: float
    at_ms: int
    step: int = 0


@dataclass(frozen=True)
class Window:
    """When a run took place, in Unix seconds."""

    start_s: float
    end_s: float


def step_points(folder: RunFolder, positions_per_step: int, window: Window, by_tokens: bool = False) -> Iterator[Point]:
    """Per repeat and step: loss and phases of rank 0, and the slowest rank's time and tokens/s. Profiled steps are left out.

    `by_tokens`: the loss once more, with the tokens trained on in the place of the step, so that runs of other batches are drawn over one axis.
    """
    for repeat in folder.repeats():
        ranks = {path: read_samples(path) for path in sorted(repeat.glob("samples.*.jsonl"))}
        first = next(iter(ranks.values()), [])
        if not first:
            continue
        # Of a folder that was copied the files may be younger than the run.
        origin_s = min(origin_unix_s(next(iter(ranks)), first), window.end_s - first[-1].t_end_s)
        slowest = _slowest(list(ranks.values()))
        for sample in _measured(first):
            at_ms = round(1e3 * (origin_s + sample.t_end_s))
            for name, value in _values(sample, slowest[sample.step], positions_per_step):
                yield Point(f"{repeat.name}/{name}", value, at_ms, sample.step)
            if by_tokens:
                yield Point(f"{repeat.name}/loss_over_tokens", sample.loss, at_ms, (sample.step + 1) * positions_per_step)


def result_points(result: RunResult | None, window: Window) -> Iterator[Point]:
    """Means, and beside them the deviations where there are any; the ends of the interval of tokens_per_s."""
    at_ms = round(1e3 * window.end_s)
    for name, metric in (result.metrics if result else {}).items():
        if metric is None:
            continue
        yield Point(name, metric.mean, at_ms)
        for deviation in ("std_between_repeats", "std_within_run"):
            value = getattr(metric, deviation)
            if value is not None:
                yield Point(f"{name}_{deviation}", value, at_ms)
    yield from _interval_points(result, at_ms)


def _interval_points(result: RunResult | None, at_ms: int) -> Iterator[Point]:
    for end in ("tokens_per_s_low", "tokens_per_s_high"):
        value = getattr(result.stability, end) if result and result.stability else None
        if value is not None:
            yield Point(end, value, at_ms)


def system_points(path: Path, window: Window) -> Iterator[Point]:
    """A machine's samples taken while the run lasted, under the prefix by which MLflow knows system metrics; of several by their numbers."""
    node = path.suffixes[0].removeprefix(".")
    prefix = f"system/node_{node}" if node.isdigit() else "system"
    during = (sample for sample in read_json_lines(path) if sample["at_s"] >= window.start_s)
    for step, sample in enumerate(during):
        at_ms = round(1e3 * sample["at_s"])
        yield from (Point(f"{prefix}/{name}", float(value), at_ms, step) for name, value in sample.items() if name not in ("at_s", "interval_s"))


def _measured(samples: list[StepSample]) -> list[StepSample]:
    """Up to the last measured step: what is written as warm-up after it was profiled."""
    last = max((index for index, sample in enumerate(samples) if not sample.warmup), default=len(samples) - 1)
    return samples[: last + 1]


def _slowest(ranks: list[list[StepSample]]) -> dict[int, float]:
    seconds: dict[int, float] = {}
    for sample in (sample for samples in ranks for sample in samples):
        seconds[sample.step] = max(seconds.get(sample.step, 0.0), sample.t_end_s - sample.t_start_s)
    return seconds


def _values(sample: StepSample, step_time_s: float, positions: int) -> Iterator[tuple[str, float]]:
    yield "loss", sample.loss
    yield "step_time_s", step_time_s
    if step_time_s > 0:
        yield "tokens_per_s", positions / step_time_s
    if sample.memory_bytes is not None:
        yield "memory_bytes", float(sample.memory_bytes)
    for phase, seconds in (sample.phases_s or {}).items():
        yield f"{phase}_time_s", seconds
