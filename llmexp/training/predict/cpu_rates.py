"""The rates of this machine's processor, by runs of task=micro with as many ranks and threads in the outputs folder.

They are those of each point's fastest calls: on a processor, other programs only ever slow a call down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from llmexp.machine import processor
from llmexp.record.calibration import TASK
from llmexp.record.result import ResultPoint, RunResult
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.micro_results import micro_results, name_of

MICROBENCHMARKS = "microbenchmarks of this processor"
_FAST = "time_p5_s"
_COPY = "device_to_device"
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Collective:
    """The time of a collective: so much for a call, and so much for each byte."""

    call_s: float
    byte_s: float

    def time_s(self, size_bytes: float, calls: float = 1.0) -> float:
        """Return the seconds of so many calls that together have this size."""
        return calls * self.call_s + size_bytes * self.byte_s


@dataclass(frozen=True)
class CpuRates:
    """What one rank reaches while all work: seconds for each unit of work."""

    run: str
    """The latest run of task=micro that measured them."""
    call_s: float
    """Of a call that does hardly any work: a copy of the fewest bytes."""
    flop_s: float
    element_s: float
    """Of RMSNorm, for each number."""
    logit_s: float
    """Of cross-entropy, for each token and word of the vocabulary."""
    scores_s: Mapping[str, float]
    """Of attention, for each score of a head, by kind and direction: unfused_forward, …"""
    updated_s: float
    """Of AdamW, for each parameter."""
    collectives: Mapping[str, Collective]
    """By kind; none for one rank."""

    @property
    def source(self) -> str:
        """What predictions by these rates go by."""
        return f"{MICROBENCHMARKS} ({self.run})"


def cpu_rates(plan: TrainingPlan) -> CpuRates | None:
    """Return the rates for a plan's ranks and threads; None on a GPU, or where its outputs folder has none of them."""
    if plan.config.hardware.device != "cpu":
        return None
    wanted = processor.model(), threads_of(plan)
    found = [result for result in micro_results(Path(plan.config.sweep.outputs)) if _machine(result) == wanted]
    latest = max((one for one in found if one.processes == plan.processes), key=lambda one: one.ended_at, default=None)
    if latest is None:
        return None
    # More ranks at work only slow a rank's own calls down; collectives are those of as many ranks.
    like = [one for one in found if one.environment.get("torch") == latest.environment.get("torch")]
    of_rank = _fastest([one for one in like if one.processes >= plan.processes])
    of_all = _fastest([one for one in like if one.processes == plan.processes])
    return _rates(latest, of_rank, of_all, plan.config.precision.products)


def threads_of(plan: TrainingPlan) -> int:
    """Return the threads of each rank."""
    return plan.config.measure.threads_per_rank or max(1, processor.usable_cores() // plan.ranks_per_node)


def measuring_words(plan: TrainingPlan) -> list[str]:
    """Return the words of the run that measures the rates for a plan's ranks and threads."""
    threads = plan.config.measure.threads_per_rank
    own = [f"measure.threads_per_rank={threads}"] if threads else []
    return [f"task={TASK}", "hardware=cpu", f"micro.ranks={plan.processes}", *own]


def _machine(result: RunResult) -> tuple[Any, ...]:
    environment = result.environment
    return (environment.get("cpu") or {}).get("model"), environment.get("torch_threads")


def _fastest(results: Sequence[RunResult]) -> list[ResultPoint]:
    """Return each point of the run that was the fastest there."""
    found: dict[str, ResultPoint] = {}
    for point in (point for result in results for point in result.points if point.metrics.get(_FAST)):
        name = repr(sorted((key, value) for key, value in point.params.items() if key != "what_ran"))
        found[name] = min(found.get(name, point), point, key=_time_s)
    return list(found.values())


def _rates(
    result: RunResult, points: Sequence[ResultPoint], of_all: Sequence[ResultPoint], dtype: str
) -> CpuRates | None:
    """Return the rates that points of a rank, and of all together, have in this dtype; None where they lack one."""
    try:
        return CpuRates(
            run=name_of(result),
            call_s=min(_time_s(point) for point in points if point.params["kind"] == _COPY),
            flop_s=_each(points, ("gemm",), ("m", "n", "k"), dtype) / 2,
            element_s=_each(points, ("rms_norm",), ("tokens", "hidden"), dtype),
            logit_s=_each(points, ("cross_entropy",), ("tokens", "vocab"), dtype),
            scores_s=dict(_scores(points, dtype)),
            updated_s=_each(points, ("adamw_on_device",), ("parameters",)),
            collectives={kind: _collective(of_all, kind) for kind in _COLLECTIVES} if result.processes > 1 else {},
        )
    except (KeyError, ValueError):
        return None


def _each(points: Sequence[ResultPoint], kinds: Sequence[str], sizes: Sequence[str], dtype: str = "") -> float:
    """Return the seconds for each unit of work, the median over points; raises ValueError where there is none."""
    return median(
        _time_s(point) / _product(point, sizes)
        for point in points
        if point.params["kind"] in kinds and point.params.get("dtype", "") in (dtype or point.params.get("dtype", ""),)
    )


def _scores(points: Sequence[ResultPoint], dtype: str) -> Iterator[tuple[str, float]]:
    for kind in ("unfused", "flash"):
        for direction in ("forward", "backward"):
            name = f"{kind}_{direction}"
            yield name, _each(points, (name,), ("batch", "heads", "seq_len", "seq_len"), dtype)


def _collective(points: Sequence[ResultPoint], kind: str) -> Collective:
    """Return a line through the smallest and the largest message."""
    found = sorted((point.params["bytes"], _time_s(point)) for point in points if point.params["kind"] == kind)
    (small, call_s), (large, time_s) = found[0], found[-1]
    return Collective(call_s, max(0.0, (time_s - call_s) / (large - small)))


def _product(point: ResultPoint, sizes: Sequence[str]) -> float:
    total = 1.0
    for name in sizes:
        total *= float(point.params[name])
    return total


def _time_s(point: ResultPoint) -> float:
    metric = point.metrics[_FAST]
    assert metric is not None
    return metric.mean
