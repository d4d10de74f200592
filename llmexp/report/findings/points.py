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
_TIMED = {"time_s": "time_s", "flops_per_s": "flops_per_s"}
_CACHE, _DTYPE_OPTION, _TOKENS_OPTION = "kv_cache_tokens", "kv_dtype", "kv_tokens"
# What a point of a microbenchmark says of the machine, and not of the question.
_ANSWERS = ("kind", "family", "what_ran")
# Tensor cores want a multiple of 8 rows of 16-bit numbers. A product that lacks it is compared with that of the
# multiple of 64 below it, by FLOP/s, so that the few rows more count for nothing.
_ALIGNED_DTYPES, _ALIGNED_ROWS, _TILE_ROWS = ("bf16", "fp16"), 8, 64


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
        values=_figures(point.metrics, _SERVED) | _capacity(run) if point else {},
        task="serve",
        engine=config.engine.name,
        model=config.model.name,
        method=_cache_dtype(config.engine.options),
        batches=frozenset({ONE}),
        setting=json.dumps(parts, sort_keys=True),
        options=json.dumps(_other_options(config.engine.options), sort_keys=True, default=str),
        **where_of(run),
    )


def _cache_dtype(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the atom of a KV cache in another dtype than the model's, such as KV_INT8."""
    dtype = options.get(_DTYPE_OPTION) or "auto"
    return frozenset() if dtype == "auto" else frozenset({f"KV_{dtype}".upper()})


def _other_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != _DTYPE_OPTION}


def _capacity(run: Row) -> dict[str, RowFigure]:
    """Return the tokens that the cache has room for, taken as told; none where the user said how many."""
    found = None if run.plan.config.engine.options.get(_TOKENS_OPTION) else run.metric(_CACHE)
    if not found or found.mean <= 0:
        return {}
    return {_CACHE: figure_of(found) if found.std_between_repeats else RowFigure.exact(found.mean)}


def _point(run: Row, point: ResultPoint) -> ClaimRow:
    """Return a row whose method is the kind of call, such as all_gather, so that kinds can be swapped.

    A product whose m no tensor core likes has the atom UNALIGNED too.
    """
    kind = str(point.params.get("kind", point.params.get("family", "")))
    size = {name: value for name, value in point.params.items() if name not in _ANSWERS}
    shape, is_aligned = _aligned(kind, size)
    return ClaimRow(
        table="",
        label=f"{kind} {' '.join(map(str, size.values()))} {run.hardware}",
        values=_figures(point.metrics, _TIMED),
        task="micro",
        engine=run.plan.config.engine.name,
        method=frozenset({kind.upper()} | (set() if is_aligned else {"UNALIGNED"})),
        batches=frozenset({ONE}),
        setting=json.dumps(shape, sort_keys=True, default=str),
        **where_of(run),
    )


def _aligned(kind: str, size: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the sizes with the aligned m that a product is compared at, and whether it is that already."""
    rows = size.get("m", 0)
    if kind != "gemm" or size.get("dtype") not in _ALIGNED_DTYPES or rows % _ALIGNED_ROWS == 0:
        return dict(size), True
    return {**size, "m": rows // _TILE_ROWS * _TILE_ROWS}, False


def _figures(metrics: Mapping[str, Metric | None], names: Mapping[str, str]) -> dict[str, RowFigure]:
    return {own: figure_of(found) for name, own in names.items() if (found := metrics.get(name)) and found.mean > 0}
