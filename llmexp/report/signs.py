"""Signs beside figures, and a figure's deviation."""

from __future__ import annotations

from llmexp.record.result import Metric
from llmexp.report.row import Row

PARTLY_TRAINED = "†"
UNSTABLE = "!"
UNKNOWN = "?"


def doubt_sign(row: Row) -> str:
    """Return the sign of a speed that is unreliable, or not known to be reliable; empty for other speeds."""
    verdict = row.stability.verdict if row.stability else ""
    return {"unstable": UNSTABLE, "unknown": UNKNOWN}.get(verdict, "")


def deviation(metric: Metric) -> str:
    """Return the deviation between repeats, or else the one within the run, marked w."""
    if metric.std_between_repeats is not None:
        return f" ± {metric.std_between_repeats:,.1f}"
    return f" ± {metric.std_within_run:,.1f} w" if within_run(metric) else ""


def within_run(metric: Metric) -> bool:
    """Tell whether there is only one repeat, so that only its steps vary."""
    return metric.std_between_repeats is None and metric.std_within_run is not None
