"""A verdict from a number and the limits that a claim states, with the rows that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.report.findings.rows import ClaimRow, RowFigure

HOLDS, PARTLY, FAILS, CANNOT_TELL = "holds", "partly", "fails", "cannot tell"
Range = tuple[float | None, float | None]


@dataclass(frozen=True)
class Answer:
    """A verdict, the numbers that it rests on, and the rows that they are from."""

    verdict: str
    numbers: str
    used: tuple[ClaimRow, ...] = ()


def within(value: float, limits: Range) -> bool:
    """Tell whether a value lies in a range, ends included; None is no limit."""
    low, high = limits
    return (low is None or value >= low) and (high is None or value <= high)


def judged(value: float, holds: Range, partly: Range | None) -> str:
    """Return holds in the range of holds, partly in that of partly, else fails."""
    if within(value, holds):
        return HOLDS
    return PARTLY if partly and within(value, partly) else FAILS


def judged_figure(figure: RowFigure, holds: Range, partly: Range | None) -> str:
    """Return the verdict on a figure; cannot tell where both ends of its interval do not have it too."""
    verdicts = {judged(value, holds, partly) for value in (figure.low, figure.value, figure.high)}
    return verdicts.pop() if len(verdicts) == 1 else CANNOT_TELL


def judged_share(inside: Sequence[bool | None], holds: Range, partly: Range | None) -> str:
    """Return the verdict on the share of True; cannot tell where what is None, not known, could change it."""
    sure, open_ = sum(each is True for each in inside), sum(each is None for each in inside)
    verdicts = {judged((sure + more) / len(inside), holds, partly) for more in range(open_ + 1)}
    return verdicts.pop() if len(verdicts) == 1 else CANNOT_TELL


def surely_within(figure: RowFigure, limits: Range) -> bool | None:
    """Tell whether the whole interval lies inside (True) or outside (False) of a range; None where it does neither."""
    if within(figure.low, limits) and within(figure.high, limits):
        return True
    low, high = limits
    is_outside = (low is not None and figure.high < low) or (high is not None and figure.low > high)
    return False if is_outside else None


def together(answers: Sequence[Answer], rule: str) -> Answer:
    """Join the answers to the parts of a claim.

    With 'every' the worst counts: the claim fails where a part does. With 'mixed' parts that differ are partly.
    """
    numbers = "; ".join(answer.numbers for answer in answers)
    used = tuple(dict.fromkeys(row for answer in answers for row in answer.used))
    return Answer(_joined({answer.verdict for answer in answers}, rule), numbers, used)


def _joined(verdicts: set[str], rule: str) -> str:
    if CANNOT_TELL in verdicts:
        return CANNOT_TELL
    if len(verdicts) == 1:
        return next(iter(verdicts))
    return FAILS if rule == "every" and FAILS in verdicts else PARTLY
