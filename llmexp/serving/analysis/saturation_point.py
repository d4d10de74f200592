"""Saturation: between which two rates a server stops to keep up with an open load, or to keep an objective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# A rate in requests a second, and whether it was kept up with; None where that is not known.
RateAnswer = tuple[float, bool | None]


def holds(verdicts: Iterable[str]) -> bool | None:
    """Say whether a load point was kept up with, and within its objective if there is one; None if not known.

    These are the verdicts of its Saturation and its Attainment. An objective that was kept says little alone: the
    longer an overload lasts, the fewer keep it.
    """
    answers = [_ANSWERS[verdict] for verdict in verdicts]
    if False in answers:
        return False
    return None if None in answers else True


_ANSWERS = {"kept_up": True, "kept": True, "overloaded": False, "missed": False, "unknown": None}


@dataclass(frozen=True)
class SaturationPoint:
    """The rates on both sides of saturation, in requests a second; None where no rate was found on that side.

    `high_per_s` is the lowest rate that did not hold, and `low_per_s` the highest below it that did. Between them lie
    `unknown_per_s`. Rates that held above the lowest that did not are `contrary_per_s`: then the rates do not tell one
    point, and the lower one is shown.
    """

    low_per_s: float | None
    high_per_s: float | None
    unknown_per_s: list[float] = field(default_factory=list)
    contrary_per_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        """Say where it lies, and what is against it."""
        unknown = f" ({_listed(self.unknown_per_s)} could not be judged)" if self.unknown_per_s else ""
        contrary = (
            f"; but {_listed(self.contrary_per_s)} held, though {self.high_per_s:g}/s did not: measure these again"
            if self.contrary_per_s
            else ""
        )
        return f"{self._place()}{unknown}{contrary}"

    def _place(self) -> str:
        if self.low_per_s is None and self.high_per_s is None:
            return "unknown"
        if self.low_per_s is None:
            return f"below {self.high_per_s:g} requests/s"
        if self.high_per_s is None:
            return f"at least {self.low_per_s:g} requests/s"
        return f"between {self.low_per_s:g} and {self.high_per_s:g} requests/s"


def find_saturation(answers: Sequence[RateAnswer]) -> SaturationPoint:
    """Find saturation in the answers of load points in any order; those of a rate that was tried again are counted."""
    by_rate = {
        rate: _majority([answer for other, answer in answers if other == rate])
        for rate in sorted({rate for rate, _ in answers})
    }
    held = [rate for rate, answer in by_rate.items() if answer is True]
    high = min((rate for rate, answer in by_rate.items() if answer is False), default=None)
    low = max((rate for rate in held if high is None or rate < high), default=None)
    return SaturationPoint(
        low,
        high,
        [
            rate
            for rate, answer in by_rate.items()
            if answer is None and (low is None or rate > low) and (high is None or rate < high)
        ],
        [rate for rate in held if high is not None and rate > high],
    )


def _majority(answers: Sequence[bool | None]) -> bool | None:
    """Return the answer that was given more often; None where neither was."""
    held, failed = answers.count(True), answers.count(False)
    return None if held == failed else held > failed


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}/s" for rate in rates)
