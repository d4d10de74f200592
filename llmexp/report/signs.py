"""Signs beside figures, and a figure's deviation."""

from __future__ import annotations

from llmexp.record.digits import rounded, with_deviation
from llmexp.record.result import Metric
from llmexp.report.row import Row

PARTLY_TRAINED = "†"
UNSTABLE = "!"
UNKNOWN = "?"


def doubt_sign(row: Row) -> str:
    """Return the sign of a speed that is unreliable, or not known to be reliable; empty for other speeds."""
    verdict = row.stability.verdict if row.stability else ""
    return {"unstable": UNSTABLE, "unknown": UNKNOWN}.get(verdict, "")


def with_spread(metric: Metric) -> str:
    """Return a mean with the deviation between repeats, or else the one within the run, marked w."""
    if metric.std_between_repeats is not None:
        return with_deviation(metric.mean, metric.std_between_repeats)
    return (
        f"{with_deviation(metric.mean, metric.std_within_run or 0.0)} w" if within_run(metric) else rounded(metric.mean)
    )


def within_run(metric: Metric) -> bool:
    """Tell whether there is only one repeat, so that only its steps vary."""
    return metric.std_between_repeats is None and metric.std_within_run is not None
