"""A verdict on each of many rows that two sides measured in turns, by the log ratios within blocks.

A block is one measurement of each side, one right after the other: what lasts longer than a block meets both and
cancels in their ratio. The test is Student's t over a row's blocks, corrected by Holm's method over the rows. A side
that is measured against itself in the same turns, the control, bounds it from below: no row's error is taken to be
smaller than the control's, and no ratio counts that is not beyond the control's. docs/numbers.md has the simulated
error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import fmean, stdev

from llmexp.analysis.inference import Estimate
from llmexp.analysis.many_rows import MARGIN, Verdict, corrected, verdict_on

Block = tuple[float, float]


def over_blocks(blocks: Sequence[Block]) -> Estimate | None:
    """Estimate b over a by blocks (a, b) of positive values; None with fewer than two blocks."""
    ratios = [log(b / a) for a, b in blocks]
    if len(ratios) < 2:
        return None
    return Estimate(fmean(ratios), stdev(ratios) / sqrt(len(ratios)), len(ratios) - 1)


def shown_by(control: Estimate | None, margin: float = MARGIN) -> float:
    """Return the least difference that counts: the margin, or what the control showed where that is more."""
    return max(margin, exp(abs(control.value)) - 1 if control else 0.0)


def blocked_verdicts(
    rows: Sequence[Sequence[Block]], control: Estimate | None, margin: float = MARGIN
) -> list[Verdict]:
    """Judge the blocks of every row; a row of fewer than two blocks is unknown and counts for no correction.

    A row is higher or lower beyond what the control showed, but within only by the margin itself.
    """
    found = [estimate and _no_surer_than(control, estimate) for estimate in map(over_blocks, rows)]
    tested = [estimate for estimate in found if estimate]
    p_values = iter(corrected(tested))
    margins = margin, shown_by(control, margin)
    return [
        verdict_on(estimate, next(p_values), (len(blocks), len(blocks)), margins, len(tested))
        if estimate
        else Verdict("unknown", None, None, 3)
        for blocks, estimate in zip(rows, found, strict=True)
    ]


def _no_surer_than(control: Estimate | None, estimate: Estimate) -> Estimate:
    return replace(estimate, error=max(estimate.error, control.error)) if control else estimate
