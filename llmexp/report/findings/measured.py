"""Runs as rows that claims are decided by: only what was measured, and what ran out of memory."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp
from typing import Any

from llmexp.analysis.inference import of_repeats
from llmexp.record.result import Metric
from llmexp.report.findings.rows import LARGEST, UNKNOWN, ClaimRow, RowFigure, atoms, batch_words, platform
from llmexp.report.row import OOM, Row

_TASKS = ("pretrain", "finetune")
_BYTES_PER_GB = 1e9
# What the rows of a comparison share besides the fields of ClaimRow, as far as their task has it.
_SETTING = ("data", "precision", "optimizer", "adapter", "kernels", "memory", "parallelism")


def rows_of_runs(runs: Iterable[Row]) -> tuple[ClaimRow, ...]:
    """Return a row for each training run that was measured or ran out of memory; controls are left out.

    'largest' is what batch.micro=max found, and the largest measured batch of runs that differ in nothing else, where
    there are several.
    """
    found = [
        _row(run)
        for run in runs
        if run.plan.config.task.name in _TASKS and not run.is_control and (run.state == OOM or run.rate)
    ]
    alike: dict[tuple[object, ...], list[ClaimRow]] = defaultdict(list)
    for row in found:
        alike[row.task, row.engine, row.model, row.method, row.hardware, row.gpus, row.setting].append(row)
    largest = {id(_largest(rows)) for rows in alike.values() if len({row.micro for row in rows}) > 1}
    return tuple(replace(row, batches=row.batches | {LARGEST}) if id(row) in largest else row for row in found)


def _largest(rows: Sequence[ClaimRow]) -> ClaimRow:
    return max(rows, key=lambda row: (bool(row.values), row.micro))


def _row(run: Row) -> ClaimRow:
    plan: Any = run.plan
    config = plan.config
    hardware, micro, method = config.hardware, plan.batch.micro, run.name
    is_gpu = hardware.device == "cuda"
    return ClaimRow(
        table="",
        label=f"{config.model.name} {method} {hardware.name} batch {micro}",
        values={} if run.state == OOM else _figures(run, micro),
        task=config.task.name,
        engine=config.engine.name,
        model=config.model.name,
        method=atoms(method),
        hardware=hardware.name,
        platform=platform(hardware.name, hardware.memory_bytes) if is_gpu else frozenset({hardware.name}),
        micro=micro,
        batches=batch_words(micro, is_largest=config.batch.is_searched),
        gpus=run.processes,
        setting=_setting(config),
        oom=run.state == OOM,
        doubt=run.doubt,
    )


def _figures(run: Row, micro: int) -> dict[str, RowFigure]:
    speed, peak = run.metric("tokens_per_s"), run.metric("peak_allocated_bytes")
    found = {"batch": RowFigure.exact(micro)}
    if speed:
        found["tokens_per_s"] = figure_of(speed)
    if peak:
        found["memory_gb"] = RowFigure.exact(peak.mean / _BYTES_PER_GB)
    return found


def figure_of(metric: Metric) -> RowFigure:
    """Return a mean with its 95 % interval by the repeats; one process says nothing about the next."""
    estimate = of_repeats(metric)
    if not estimate:
        return RowFigure(metric.mean, metric.mean / UNKNOWN, metric.mean * UNKNOWN)
    half = estimate.half_width()
    return RowFigure(metric.mean, metric.mean * exp(-min(half, 100.0)), metric.mean * exp(min(half, 100.0)))


def _setting(config: Any) -> str:
    """Return what two runs must share to be compared, as a text that is equal where all of it is."""
    parts = {name: getattr(config, name).model_dump(mode="json") for name in _SETTING if hasattr(config, name)}
    return json.dumps(parts | {"accumulation": config.batch.accumulation, "seed": config.seed}, sort_keys=True)
