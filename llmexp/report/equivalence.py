"""A test whether two measured speeds are the same: an interval of their ratio gives one of three answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Literal

from llmexp.analysis.inference import Estimate, log_ratio, repeats_for
from llmexp.analysis.stability import RELEVANT
from llmexp.record.result import Metric, Stability
from llmexp.report.row import Row

# The confidence of the ratio's interval: equal speeds are called different once in fifty, and a ratio beyond RELEVANT
# is called the same once in a hundred.
CONFIDENCE = 0.98
Answer = Literal["same", "different", "unknown"]


@dataclass(frozen=True)
class Equivalence:
    """An answer with its reason.

    It is `same` if the interval of the ratio lies within 5 % of 1, `different` if the interval leaves 1 out and the
    ratio itself is beyond 5 %, and otherwise `unknown`.
    """

    answer: Answer
    reason: str


def of_rows(one: Row, other: Row) -> Equivalence | None:
    """Compare the second run's rate with the first's; None where one has no rate or the rates differ in kind."""
    first, second = one.rate, other.rate
    if first is None or second is None or one.plan.rate != other.plan.rate:
        return None
    return equivalence(first, second, (one.stability, other.stability), one.plan.rate)


def equivalence(
    first: Metric, second: Metric, judged: tuple[Stability | None, Stability | None], name: str
) -> Equivalence:
    """Compare two rates of that name; disturbed runs may be called the same, but never different."""
    said, found, doubts = (
        f"{name} is {second.mean / first.mean:.3f} of the first run's",
        log_ratio(first, second),
        _doubts(judged),
    )
    if found is None:
        return Equivalence(
            "unknown",
            f"{said}, but each is one process, so how much processes differ is unknown: set measure.repeats=3",
        )
    low, high = found.ratio_interval(CONFIDENCE)
    said += f" ({CONFIDENCE:.0%} interval {low:.3f} to {high:.3f})"
    if found.is_within(RELEVANT, CONFIDENCE):
        return Equivalence("same", f"{said}, within {RELEVANT:.0%}" + f", though {doubts}" * bool(doubts))
    if doubts:
        return Equivalence("unknown", f"{said}, but {doubts}")
    if abs(found.ratio - 1) > RELEVANT and found.differs(CONFIDENCE):
        return Equivalence("different", f"{said}, beyond {RELEVANT:.0%}")
    return Equivalence(
        "unknown",
        f"{said}, which neither lies within {RELEVANT:.0%} nor leaves 1 out: {_more(found, first.n, second.n)}",
    )


def _doubts(judged: tuple[Stability | None, Stability | None]) -> str:
    """Say what may have shifted a measurement as a whole; empty where nothing did.

    The spread of repeats is not named, because the interval holds it.
    """
    named = zip(("first", "second"), judged, strict=True)
    found = [
        f"the {name} measurement is unstable ({one.words})" for name, one in named if one and one.verdict == "unstable"
    ]
    return " and ".join(found)


def _more(found: Estimate, *repeats: int) -> str:
    """Say how many repeats of each run would show equal speeds within RELEVANT if they vary as these did."""
    of_one = found.error / sqrt(sum(1 / count for count in repeats))
    needed = repeats_for(sqrt(2) * of_one, log(1 + RELEVANT), CONFIDENCE)
    return (
        f"measure.repeats={max(needed, 3)} of both may settle it"
        if needed
        else "find what makes repeats differ so much"
    )
