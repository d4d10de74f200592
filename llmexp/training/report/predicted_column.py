"""Each row's measured speed beside the one that its plan had predicted."""

from __future__ import annotations

from typing import Any

from llmexp.training.plan.fit import fit_of
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
    """Return the predicted tokens/s with the ends of their interval, and the predicted memory, by names of the CSV.

    The allocated peak is that of the tensors; what a rank needs has the libraries, and at most the allocator's waste.
    """
    found, fit = row.plan.predicted, fit_of(row.plan, row.plan.batch.micro)
    on_device = row.plan.config.hardware.device != "cpu"
    return {
        "predicted_peak_allocated_bytes": fit.tensors if fit and on_device else None,
        "predicted_need_bytes": fit and fit.need,
        "predicted_need_bytes_most": fit and fit.most,
        "predicted_tokens_per_s": found and found.rate,
        "predicted_tokens_per_s_low": found and found.low,
        "predicted_tokens_per_s_high": found and found.high,
    }
