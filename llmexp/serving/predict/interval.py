"""Intervals from the errors of published measurements whose sources were held out (split conformal prediction).

The quantiles of these errors are carried with the constants, by what was measured.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from llmexp.serving.predict.rates import constants

PredictedKind = Literal["throughput", "tpot", "ttft"]


class Ends(NamedTuple):
    """The ends of a 90 % interval as shares of a prediction, with the rows and sources behind it."""

    low: float
    high: float
    rows: int
    sources: int


def ends_of(kind: PredictedKind) -> Ends:
    """Return the ends of what is measured in that way."""
    return Ends(*constants()["intervals"][kind])
