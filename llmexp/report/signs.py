"""Signs beside figures, and the deviation that stands with one."""

from __future__ import annotations

from llmexp.record.result import Metric
from llmexp.report.row import Row

PARTLY_TRAINED = "†"
UNSTABLE = "!"
UNKNOWN = "?"


def doubt_sign(row: Row) -> str:
    """What stands behind a speed that cannot be relied on, or that nobody knows whether to rely on; empty behind others."""
    verdict = row.stability.verdict if row.stability else ""
    return {"unstable": UNSTABLE, "unknown": UNKNOWN}.get(verdict, "")


def deviation(metric: Metric) -> str:
    """The deviation between repeats; marked w, the one within the run where there is no other."""
    if metric.std_between_repeats is not None:
        return f" ± {metric.std_between_repeats:,.1f}"
    return f" ± {metric.std_within_run:,.1f} w" if within_run(metric) else ""


def within_run(metric: Metric) -> bool:
    """Whether there is one repeat, so that only its steps vary."""
    return metric.std_between_repeats is None and metric.std_within_run is not None
