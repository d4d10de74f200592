"""Runs that trained on the same budget, each compared with the baseline of its model, data and seed.

The comparison says how far the loss fell, and how soon.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from llmexp.errors import RecordError
from llmexp.record.digits import rounded
from llmexp.record.result import RunStatus
from llmexp.report.cells import own_words
from llmexp.training.convergence import REACHED_WITHIN, SMOOTHED_SHARE, LossCurve, curve_of
from llmexp.training.repeats import RunConstants, read_training
from llmexp.training.report.programs import engine_names
from llmexp.training.report.row import TrainingRow

NAIVE = "Naive"
NEVER, DIVERGED = "never", "diverged"


@dataclass(frozen=True)
class Converged:
    """A run's loss curve and that of its baseline; `label` is the method and the run's other settings."""

    row: TrainingRow
    label: str
    curve: LossCurve
    baseline_id: str
    baseline: LossCurve

    @property
    def is_baseline(self) -> bool:
        """Tell whether other runs are compared with this one."""
        return self.curve is self.baseline

    @property
    def equal_tokens(self) -> int:
        """The number of tokens at which both curves are compared, the smaller of their ends.

        Ends differ because each run rounds the budget up to whole steps.
        """
        return min(self.curve.tokens[-1], self.baseline.tokens[-1])

    @property
    def loss_at_equal_tokens(self) -> float:
        """The smoothed loss after equal_tokens; NaN where it diverged."""
        return self.curve.loss_at(self.equal_tokens)

    @property
    def loss_over_baseline(self) -> float:
        """The smoothed loss minus the baseline's at the same number of tokens."""
        return self.loss_at_equal_tokens - self.baseline.loss_at(self.equal_tokens)

    @property
    def seconds_to_loss(self) -> float | None:
        """The time until the baseline's final loss at the measured step time; None where it is not reached for good."""
        return self.curve.seconds_to(self.baseline.final_loss)

    @property
    def cells(self) -> tuple[str, str, str]:
        """Cells of the table: final loss, loss minus the baseline's, seconds to the baseline's loss."""
        loss, over, seconds = self.curve.final_loss, self.loss_over_baseline, self.seconds_to_loss
        return (
            f"{loss:.4f}" if isfinite(loss) else DIVERGED,
            f"{over:+.4f}" if isfinite(over) and not self.is_baseline else "",
            NEVER if seconds is None else rounded(seconds),
        )


def converged(rows: Sequence[TrainingRow]) -> dict[str, Converged]:
    """Return the measured runs with a budget of tokens or seconds whose samples can be read, by run id."""
    engines, several = engine_names(rows), len({row.program for row in rows}) > 1
    words = zip(rows, own_words(rows), strict=True)
    named = {
        row.id: " ".join(filter(None, [row.method, engines[row.id] * (several and bool(row.program)), own]))
        for row, own in words
    }
    curves = {row.id: curve for row in rows if (curve := _curve(row))}
    alike: dict[str, list[TrainingRow]] = {}
    for row in rows:
        if row.id in curves:
            alike.setdefault(asked_losses(row), []).append(row)
    found = {}
    for group in alike.values():
        base = _baseline(group, curves)
        for row in group:
            found[row.id] = Converged(row, named[row.id], curves[row.id], base, curves[base])
    return found


def convergence_legend(found: Sequence[Converged]) -> list[str]:
    """Say what the columns mean, which run is the baseline, and which data were read more than once."""
    if not found:
        return []
    bases = list(dict.fromkeys(f"{one.label} ({one.row.id})" for one in found if one.is_baseline))
    passes = {one.label: _passes(one.row) for one in found}
    again = ", ".join(f"{label} {times:g} times" for label, times in passes.items() if times > 1)
    share = f"{SMOOTHED_SHARE:.0%}"
    compared = (
        f"loss over baseline: the same at equal tokens, less the baseline's; smoothed over {share} of the budget too"
    )
    return [
        f"final loss: mean over the last {share} of the tokens trained on; baseline: {', '.join(bases)}",
        *([compared] if len(bases) < len(found) else []),
        f"s to loss: steps until that loss stays within {REACHED_WITHIN:.1%} above the baseline's final one, "
        "or lower, x measured step time",
        *(
            [
                "there was too little text for the budget, and losses on text seen before are lower: all of it was "
                f"read by {again}"
            ]
            if again
            else []
        ),
    ]


def _curve(row: TrainingRow) -> LossCurve | None:
    return None if row.metric("smoothed_final_loss") is None else loss_curve(row)


def loss_curve(row: TrainingRow) -> LossCurve | None:
    """Return the losses of a run with a budget, whose speed may be emulated; None where they cannot be read."""
    result = row.result
    if result is None or result.status != RunStatus.SUCCESS or not result.metrics.get("smoothed_final_loss"):
        return None
    try:
        repeats = [read_training(path, row.processes) for path in row.folder.repeats()]
        return curve_of(repeats, RunConstants.of(row.plan))
    except (RecordError, ValueError):
        return None


def asked_losses(row: TrainingRow, seed: bool = True) -> str:
    """Return what runs must share for their losses to compare, as text.

    It holds task, model, budget, seed where it counts, and the data without the cut into sequences.
    """
    config = row.plan.config
    told = config.model_dump(
        mode="json",
        include={"task": True, "model": True, "measure": {"tokens", "duration_s"}, "seed": True, "data": True},
    )
    told["data"].pop("seq_len")
    if not told["measure"]["duration_s"]:
        told["measure"].pop("duration_s")
    if not seed:
        told.pop("seed")
    # A user's own program may read any data.
    return json.dumps([told, config.engine.name == "script"], sort_keys=True)


def _baseline(group: Sequence[TrainingRow], curves: dict[str, LossCurve]) -> str:
    """Return the id of the first Naive run, or else of the first run; runs that diverged count only if all did."""
    sound = [row for row in group if isfinite(curves[row.id].final_loss)] or group
    return next((row for row in sound if row.method == NAIVE), sound[0]).id


def _passes(row: TrainingRow) -> float:
    return float(row.result.what_ran.get("data_passes", 1)) if row.result else 1.0
