"""What the rows of all kinds of runs have: a figure with its interval, and where the run ran and how it ended."""

from __future__ import annotations

from math import exp
from typing import Any

from llmexp.analysis.inference import of_repeats
from llmexp.record.result import Metric
from llmexp.report.findings.rows import UNKNOWN, RowFigure, platform
from llmexp.report.row import OOM, Row


def figure_of(metric: Metric) -> RowFigure:
    """Return a mean with its 95 % interval by the repeats; one process says nothing about the next."""
    estimate = of_repeats(metric)
    if not estimate:
        return RowFigure(metric.mean, metric.mean / UNKNOWN, metric.mean * UNKNOWN)
    half = estimate.half_width()
    return RowFigure(metric.mean, metric.mean * exp(-min(half, 100.0)), metric.mean * exp(min(half, 100.0)))


def where_of(run: Row) -> dict[str, Any]:
    """Return the fields of ClaimRow that say where a run ran, on how many GPUs, and whether it can be relied on."""
    hardware = run.plan.config.hardware
    is_gpu = hardware.device == "cuda"
    return {
        "hardware": hardware.name,
        "platform": platform(hardware.name, hardware.memory_bytes) if is_gpu else frozenset({hardware.name}),
        "gpus": run.processes,
        "oom": run.state == OOM,
        "doubt": run.doubt,
    }
