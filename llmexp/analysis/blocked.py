"""A verdict on each of many rows that two sides measured in turns, by the log ratios within blocks.

A block is one measurement of each side, one right after the other: what lasts longer than a block meets both and
cancels in their ratio. The test is Student's t over a row's blocks, corrected by Holm's method over the rows. A side
that is measured against itself in the same turns, the control, bounds it from below: no ratio counts that is not
beyond the control's, and no row's error is taken to be smaller than the control's or the median row's. A few processes
of two speeds that agree by chance would else pass for certain; the control is of one row, and others may vary more.
docs/results/verdicts.md has the simulated error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from llmexp.analysis.inference import Estimate
from llmexp.analysis.many_rows import MARGIN, RowsVerdict, corrected, verdict_on

RoundBlock = tuple[float, float]


def over_blocks(blocks: Sequence[RoundBlock]) -> Estimate | None:
    """Estimate b over a by blocks (a, b) of positive values; None with fewer than two blocks."""
    ratios = [log(b / a) for a, b in blocks]
    if len(ratios) < 2:
        return None
    return Estimate(fmean(ratios), stdev(ratios) / sqrt(len(ratios)), len(ratios) - 1)


def shown_by(control: Estimate | None, margin: float = MARGIN) -> float:
    """Return the least difference that counts: the margin, or what the control showed where that is more."""
    return max(margin, exp(abs(control.value)) - 1 if control else 0.0)


def blocked_verdicts(
    rows: Sequence[Sequence[RoundBlock]], control: Estimate | None, margin: float = MARGIN
) -> list[RowsVerdict]:
    """Judge the blocks of every row; a row of fewer than two blocks is unknown and counts for no correction.

    A row is higher or lower beyond what the control showed, but within only by the margin itself.
    """
    found = _none_too_sure([over_blocks(blocks) for blocks in rows], control)
    tested = [estimate for estimate in found if estimate]
    p_values = iter(corrected(tested))
    margins = margin, shown_by(control, margin)
    return [
        verdict_on(estimate, next(p_values), (len(blocks), len(blocks)), margins, len(tested))
        if estimate
        else RowsVerdict("unknown", None, None, 3)
        for blocks, estimate in zip(rows, found, strict=True)
    ]


def _none_too_sure(found: Sequence[Estimate | None], control: Estimate | None) -> list[Estimate | None]:
    """Return the estimates with no error below the control's, nor below the median of their own."""
    errors = [estimate.error for estimate in found if estimate]
    least = max(median(errors) if errors else 0.0, control.error if control else 0.0)
    return [estimate and replace(estimate, error=max(estimate.error, least)) for estimate in found]
