"""What all shapes of claims have: the limits, which rows, and the words for numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from llmexp.report.findings.rows import ONE, UNKNOWN, ClaimRow, RowFigure
from llmexp.report.findings.selection import Selection
from llmexp.report.findings.verdict import CANNOT_TELL, Answer, Range


class Limited(BaseModel):
    """What all shapes have: the ranges, ends included and null for no end; outside of both the claim fails."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    holds: Range
    partly: Range | None = None


class OverRows(Limited):
    """What all shapes over rows have: which rows, and their batch."""

    where: Selection = Selection()
    batch: Annotated[str, Field(coerce_numbers_to_str=True)] = ONE


def nothing(why: str, used: tuple[ClaimRow, ...] = ()) -> Answer:
    """Return that it cannot be told, and why."""
    return Answer(CANNOT_TELL, why, used)


def said(figure: RowFigure) -> str:
    """Return a figure with its interval."""
    interval = "" if figure.low == figure.high else f" ({figure.low:.3g} to {figure.high:.3g})"
    if figure.high / figure.low > UNKNOWN:
        interval = " (one repeat: no interval)"
    return f"{figure.value:.3g}{interval}"


def counted(inside: Sequence[bool | None]) -> str:
    """Return how many are True, of how many, and of how many it is not known."""
    unknown = sum(each is None for each in inside)
    more = f", not known in {unknown}," if unknown else ""
    return f"{sum(each is True for each in inside)} of {len(inside)}{more}"


def as_range(limits: Range) -> str:
    """Return a range in words."""
    low, high = limits
    if low is None or high is None:
        return f"≥ {low:g}" if low is not None else f"≤ {high:g}"
    return f"{low:g} to {high:g}"
