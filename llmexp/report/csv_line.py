"""A run's line of the CSV: what it is, how it ended, how its rate was judged, and its metrics.

The columns' names do not depend on the other runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmexp.record.result import Metric, Stability
from llmexp.report.row import Row


def csv_line(row: Row, metrics: Iterable[str]) -> dict[str, Any]:
    """Return how the rate was judged, and the metrics of these names, in SI units and bytes."""
    values = {name + suffix: value for name in metrics for suffix, value in _metric_values(row.metric(name)).items()}
    return _stability(row.plan.rate, row.result.stability if row.result else None) | values


def identity(row: Row) -> dict[str, Any]:
    """Return what the run is and how it ended."""
    result = row.result
    return {
        "sweep": row.plan.config.sweep.name,
        "id": row.id,
        "stack": result and result.stack,
        "state": row.state,
        "reason": row.reason,
        "evidence": result and result.evidence,
        "task": row.plan.config.task.name,
        "engine": row.comparison_key["engine"],
        **row.plan.name_fields,
        "hardware": row.hardware,
        "runtime": row.comparison_key["runtime"],
        "processes": row.plan.processes,
        "devices": row.plan.devices,
        "repeats": result.repeats if result else 0,
        "rate": row.plan.rate,
    }


def _metric_values(metric: Metric | None) -> dict[str, float | None]:
    values = (metric.mean, metric.std_between_repeats, metric.std_within_run) if metric else (None, None, None)
    return dict(zip(("", "_std_between_repeats", "_std_within_run"), values, strict=True))


def _stability(rate: str, judged: Stability | None) -> dict[str, Any]:
    ends = {f"{rate}_low": judged and judged.low, f"{rate}_high": judged and judged.high} if rate else {}
    clock = min(judged.sm_clocks, key=lambda clock: clock.mean_megahertz, default=None) if judged else None
    return {
        "stability": judged and judged.verdict,
        "stability_reasons": judged and judged.words,
        **ends,
        "interval_source": judged and judged.source,
        "concurrent_runs": judged and "; ".join(judged.concurrent_runs),
        "sm_clock_mean_megahertz": clock and clock.mean_megahertz,
        "sm_clock_lowest_megahertz": clock and clock.lowest_megahertz,
        "sm_clock_card_megahertz": clock and clock.card_megahertz,
    }
