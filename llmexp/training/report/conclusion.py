"""The conclusion of a table on each method beside Naive: slower, faster, or not told apart by the spread of repeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from llmexp.analysis.inference import of_repeats
from llmexp.analysis.paired import ERROR, is_contended, paired
from llmexp.record.result import DoubtKind, Stability
from llmexp.report.rounds import Rounds, rounds_of
from llmexp.training.report.converged import NAIVE
from llmexp.training.report.row import TrainingRow

# At 95 %, more than one in fifty tables of equal methods, each measured three times, would tell one of them apart
# (`benchmarks trust`).
CONFIDENCE = 0.96
# These reasons against a run are in its interval or widen it; any other reason may have shifted the run as a whole.
IN_INTERVAL = (DoubtKind.NOISE, DoubtKind.DRIFT, DoubtKind.WARMUP)
SLOWER, FASTER, ALIKE, DISTURBED = (
    "slower than Naive",
    "faster",
    "no significant difference",
    "not compared, because their measurements were disturbed",
)


@dataclass(frozen=True)
class Judge:
    """The rule of one line: Naive, the confidence with which its rounds are compared, and how rounds are read."""

    naive: TrainingRow
    confidence: float
    rounds: Rounds

    def verdict(self, row: TrainingRow) -> str:
        """Return where a method stands beside Naive."""
        if is_disturbed(row) or is_disturbed(self.naive):
            return self._by_rounds(row)
        (low, high), (low_naive, high_naive) = _interval(row) or (0.0, 0.0), _interval(self.naive) or (0.0, 0.0)
        return SLOWER if high < low_naive else FASTER if low > high_naive else ALIKE

    def _by_rounds(self, row: TrainingRow) -> str:
        """Compare repeats of the same round, where nothing but a shared host speaks against both runs."""
        both = (self.naive, row)
        contended = all(is_contended(_judged(one), IN_INTERVAL) for one in both)
        found = paired(self.rounds(self.naive), self.rounds(row)) if contended else None
        if found is None:
            return DISTURBED
        low, high = found.interval(self.confidence)
        wider = sum(log(_drift(one)) for one in both)
        return SLOWER if high + wider < 0 else FASTER if low - wider > 0 else ALIKE


def conclusion(
    rows: Sequence[TrainingRow],
    named: Callable[[TrainingRow], str] = lambda row: row.method,
    rounds: Rounds = rounds_of,
) -> list[str]:
    """Return a line for each run of Naive that was measured over several repeats, and other methods at the same work.

    The line says which methods' intervals overlap with Naive's. `named` tells a row from all others.
    """
    measured = [row for row in rows if _interval(row) and not row.is_control]
    beside: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in measured:
        if row.method != NAIVE:
            beside.setdefault(_work(row), []).append(row)
    pairs = [(row, beside[_work(row)]) for row in measured if row.method == NAIVE and _work(row) in beside]
    said = [(naive, _line(Judge(naive, 1 - ERROR / len(others), rounds), others, named)) for naive, others in pairs]
    return [f"beside {named(naive)}: {line}" if len(said) > 1 else line for naive, line in said]


def _work(row: TrainingRow) -> tuple[str, ...]:
    return tuple(row.comparison_key.values())


def _line(judge: Judge, others: Sequence[TrainingRow], named: Callable[[TrainingRow], str]) -> str:
    found: dict[str, list[str]] = {SLOWER: [], FASTER: [], ALIKE: [], DISTURBED: []}
    methods = [row.method for row in others]
    for row in others:
        found[judge.verdict(row)].append(row.method if methods.count(row.method) == 1 else named(row))
    if is_disturbed(judge.naive) and len(found[DISTURBED]) == len(others):
        return "no method is compared with Naive, whose measurements were disturbed"
    by_rounds = sum(map(is_disturbed, others)) > len(found[DISTURBED])
    told = [f"{verdict}: {', '.join(names)}" for verdict, names in found.items() if names]
    return f"{_rule(is_disturbed(judge.naive), by_rounds)}, {'; '.join(told)}"


def _rule(all_by_rounds: bool, some_by_rounds: bool) -> str:
    if all_by_rounds:
        return "round by round, as others shared the host"
    by_intervals = f"by the {100 * CONFIDENCE:.0f} % intervals of the repeats"
    return f"{by_intervals}, or round by round where others shared the host" if some_by_rounds else by_intervals


def _interval(row: TrainingRow) -> tuple[float, float] | None:
    """Return the interval of tokens_per_s between repeats, widened by the drift of the steps; None for one process."""
    judged, speed = _judged(row), row.rate
    known = of_repeats(speed) if judged and speed else None
    if known is None:
        return None
    low, high = known.ratio_interval(CONFIDENCE)
    return low / _drift(row), high * _drift(row)


def _drift(row: TrainingRow) -> float:
    """Return the ratio, 1 or more, by which the steps of an unsteady run changed."""
    judged = _judged(row)
    if judged is None:
        return 1.0
    drifted = [
        ratio
        for kind, ratio in ((DoubtKind.DRIFT, judged.drift_ratio), (DoubtKind.WARMUP, judged.warmup_ratio))
        if ratio and _says(judged, kind)
    ]
    return max((max(ratio, 1 / ratio) for ratio in drifted), default=1.0)


def is_disturbed(row: TrainingRow) -> bool:
    """Tell whether something shifted the run as a whole, which its repeats do not show."""
    judged = _judged(row)
    return (
        judged is not None
        and judged.verdict == "unstable"
        and any(reason.kind not in IN_INTERVAL for reason in judged.reasons)
    )


def _says(judged: Stability, kind: DoubtKind) -> bool:
    return any(reason.kind is kind for reason in judged.reasons)


def _judged(row: TrainingRow) -> Stability | None:
    return row.result.stability if row.result and row.rate else None
