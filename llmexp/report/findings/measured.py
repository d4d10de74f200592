"""Runs as rows that claims are decided by: only what was measured, and what ran out of memory.

Of training each run is a row, of serving each run of a single load, of microbenchmarks each point.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from llmexp.record.result import RunStatus
from llmexp.report.findings.points import rows_of_points
from llmexp.report.findings.rows import LARGEST, ClaimRow, RowFigure, atoms, batch_words
from llmexp.report.findings.run_figures import figure_of, where_of
from llmexp.report.row import OOM, Row

_TASKS = ("pretrain", "finetune")
_SPEED = "tokens_per_s"
_BYTES_PER_GB = 1e9
# What the rows of a comparison share besides the fields of ClaimRow, as far as their task has it.
_SETTING = ("data", "precision", "optimizer", "adapter", "kernels", "memory", "parallelism")


def rows_of_runs(runs: Iterable[Row]) -> tuple[ClaimRow, ...]:
    """Return the rows of runs that were measured or ran out of memory; controls are left out.

    'largest' is what batch.micro=max found, and the largest measured batch of training runs that differ in nothing
    else, where there are several.
    """
    ended = [run for run in runs if not run.is_control and run.result and run.state in (OOM, RunStatus.SUCCESS)]
    trained = [run for run in ended if run.plan.config.task.name in _TASKS]
    others = [row for run in ended if run not in trained for row in rows_of_points(run)]
    return (*_trained([_row(run) for run in trained if run.state == OOM or run.rate]), *others)


def _trained(found: Sequence[ClaimRow]) -> tuple[ClaimRow, ...]:
    """Return rows of training that know which of them has the largest batch, and how well several GPUs scale."""
    alike: dict[tuple[object, ...], list[ClaimRow]] = defaultdict(list)
    for row in found:
        alike[row.task, row.engine, row.model, row.method, row.hardware, row.gpus, row.setting].append(row)
    largest = {id(_largest(rows)) for rows in alike.values() if len({row.micro for row in rows}) > 1}
    told = [replace(row, batches=row.batches | {LARGEST}) if id(row) in largest else row for row in found]
    return tuple(replace(row, values={**row.values, **_scaling(row, told)}) for row in told)


def _scaling(row: ClaimRow, rows: Sequence[ClaimRow]) -> dict[str, RowFigure]:
    """Return the row's speed over that of as many single GPUs, where the same run on one is among the rows."""
    same = ("task", "engine", "model", "method", "hardware", "micro", "setting")
    alone = [one for one in rows if one.gpus == 1 and all(getattr(one, name) == getattr(row, name) for name in same)]
    if row.gpus == 1 or not alone or _SPEED not in row.values or _SPEED not in alone[0].values:
        return {}
    ratio = row.values[_SPEED].over(alone[0].values[_SPEED])
    return {"scaling": RowFigure(*(end / row.gpus for end in (ratio.value, ratio.low, ratio.high)))}


def _largest(rows: Sequence[ClaimRow]) -> ClaimRow:
    return max(rows, key=lambda row: (bool(row.values), row.micro))


def _row(run: Row) -> ClaimRow:
    plan: Any = run.plan
    config = plan.config
    micro, method = plan.batch.micro, run.name
    return ClaimRow(
        table="",
        label=f"{config.model.name} {method} {config.hardware.name} batch {micro}",
        values={} if run.state == OOM else _figures(run, micro),
        task=config.task.name,
        engine=config.engine.name,
        model=config.model.name,
        method=atoms(method),
        micro=micro,
        batches=batch_words(micro, is_largest=config.batch.is_searched),
        setting=_setting(config),
        **where_of(run),
    )


def _figures(run: Row, micro: int) -> dict[str, RowFigure]:
    peak, found = run.metric("peak_allocated_bytes"), {"batch": RowFigure.exact(micro)}
    for name, metric in {_SPEED: _SPEED, "final_loss": "smoothed_final_loss"}.items():
        if value := run.metric(metric):
            found[name] = figure_of(value)
    if peak:
        found["memory_gb"] = RowFigure.exact(peak.mean / _BYTES_PER_GB)
    return found


def _setting(config: Any) -> str:
    """Return what two runs must share to be compared, as a text that is equal where all of it is."""
    parts = {name: getattr(config, name).model_dump(mode="json") for name in _SETTING if hasattr(config, name)}
    parts["parallelism"].pop("dp", None)  # it follows from the number of GPUs, which rows have
    return json.dumps(parts | {"accumulation": config.batch.accumulation, "seed": config.seed}, sort_keys=True)
