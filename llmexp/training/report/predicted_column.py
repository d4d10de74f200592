"""Each row's measured speed beside the one that its plan had predicted."""

from __future__ import annotations

from typing import Any

from llmexp.training.report.row import TrainingRow

PREDICTED = "x predicted"
PREDICTED_LEGEND = f"{PREDICTED}: tokens/s over the plan's prediction; * outside of its 90 % interval"


def over_predicted_cell(row: TrainingRow) -> str:
    """Return measured over predicted speed; empty where either is missing."""
    share, predicted = row.over_predicted, row.plan.predicted
    if share is None or predicted is None:
        return ""
    is_inside = predicted.holds[0] <= share <= predicted.holds[1]
    return f"{share:.2f}" + " *" * (not is_inside)


def predicted_values(row: TrainingRow) -> dict[str, Any]:
    """Return the predicted tokens/s and the ends of their interval, by the names of the CSV."""
    found = row.plan.predicted
    return {
        "predicted_tokens_per_s": found and found.rate,
        "predicted_tokens_per_s_low": found and found.low,
        "predicted_tokens_per_s_high": found and found.high,
    }
