"""The rows of servers and microbenchmarks, whose figures belong to points: a load, a size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llmexp.record.result import Metric, ResultPoint
from llmexp.report.findings.rows import ONE, ClaimRow, RowFigure
from llmexp.report.findings.run_figures import figure_of, where_of
from llmexp.report.row import OOM, Row

# The metrics of points by the names that claims use.
_SERVED = {"output_tokens_per_s": "tokens_per_s", "end_to_end_p50_s": "latency_s"}
_TIMED = {"time_s": "time_s"}
# What a point of a microbenchmark says of the machine, and not of the question.
_ANSWERS = ("kind", "family", "what_ran")


def rows_of_points(run: Row) -> list[ClaimRow]:
    """Return the row of a server under a single load, or one for each point of a microbenchmark."""
    points = run.result.points if run.result else []
    if run.plan.config.task.name == "serve":
        alone = points[0] if len(points) == 1 else None
        return [_served(run, alone)] if alone or run.state == OOM else []
    return [_point(run, point) for point in points if not point.problem]


def _served(run: Row, point: ResultPoint | None) -> ClaimRow:
    config: Any = run.plan.config
    parts = {name: getattr(config, name).model_dump(mode="json") for name in ("serve", "parallelism")}
    return ClaimRow(
        table="",
        label=f"{config.engine.name} {config.model.name} {config.hardware.name}",
        values=_figures(point.metrics, _SERVED) if point else {},
        task="serve",
        engine=config.engine.name,
        model=config.model.name,
        batches=frozenset({ONE}),
        setting=json.dumps(parts, sort_keys=True),
        **where_of(run),
    )


def _point(run: Row, point: ResultPoint) -> ClaimRow:
    """Return a row whose method is the kind of call, such as all_gather, so that kinds can be swapped."""
    kind = str(point.params.get("kind", point.params.get("family", "")))
    size = {name: value for name, value in point.params.items() if name not in _ANSWERS}
    return ClaimRow(
        table="",
        label=f"{kind} {' '.join(map(str, size.values()))} {run.hardware}",
        values=_figures(point.metrics, _TIMED),
        task="micro",
        engine=run.plan.config.engine.name,
        method=frozenset({kind.upper()}),
        batches=frozenset({ONE}),
        setting=json.dumps(size, sort_keys=True, default=str),
        **where_of(run),
    )


def _figures(metrics: Mapping[str, Metric | None], names: Mapping[str, str]) -> dict[str, RowFigure]:
    return {own: figure_of(found) for name, own in names.items() if (found := metrics.get(name)) and found.mean > 0}
