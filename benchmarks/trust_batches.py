"""How often the verdict on a larger batch is wrong, over simulated searches whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.figure import Figure
from benchmarks.rates import rate
from llmexp.record.result import Metric
from llmexp.training.analysis.batch_gain import WORTH, batch_gain

# A search that ends at 12 tries these once each and 12 twice.
TRIED, FOUND = (2, 4, 8), 12
# A verdict at the border is wrong in at most half of the interval's 5 %.
LIMIT = 2.5


@dataclass(frozen=True)
class Searches:
    """Simulated searches: what a doubling of the batch truly brings, and the deviation between processes as a share."""

    per_doubling: float
    deviation: float
    repeats: int = 3


def batch_verdicts(tries: int) -> Iterator[Figure]:
    """Yield the rates in percent of wrong verdicts at their border, and of right ones away from it."""
    for deviation in (0.005, 0.02, 0.05):
        case = f"{deviation:.1%} between processes"
        border, flat, steep = (answers(tries, Searches(truth, deviation)) for truth in (WORTH, 0.0, 0.2))
        for wrong in ("pays", "saturated"):
            named = f"a doubling that brings {WORTH:.0%} called {wrong}: {case}"
            yield rate(named, border.count(wrong), tries, limit=LIMIT)
        for truth, said, wrong, right in (("0 %", flat, "pays", "saturated"), ("20 %", steep, "saturated", "pays")):
            named = f"a doubling that brings {truth} called"
            yield rate(f"{named} {wrong}: {case}", said.count(wrong), tries, limit=LIMIT)
            yield rate(f"{named} {right}: {case}", said.count(right), tries)


def answers(tries: int, searches: Searches) -> list[str]:
    """Return the verdict on each simulated search; speeds scatter normally in their logarithm."""
    rng = np.random.default_rng(0)
    found: list[str] = []
    for _ in range(tries):
        own = _speeds(rng, searches, FOUND, searches.repeats)
        tried = {micro: _speeds(rng, searches, micro, 1).tolist() for micro in TRIED}
        tried[FOUND] = _speeds(rng, searches, FOUND, 2).tolist()
        spread = float(own.std(ddof=1)) if len(own) > 1 else None
        gain = batch_gain(tried, Metric(mean=float(own.mean()), std_between_repeats=spread, n=len(own)))
        found.append(gain.answer if gain else "unknown")
    return found


def _speeds(rng: np.random.Generator, searches: Searches, micro: int, count: int) -> np.ndarray:
    truth = np.log(1 + searches.per_doubling) * np.log2(micro)
    return np.asarray(np.exp(truth + rng.normal(0.0, searches.deviation, count)))
