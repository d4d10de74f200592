"""The conclusion of a table on each method beside Naive: slower, faster, or not told apart by the spread of repeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmexp.analysis.inference import of_repeats
from llmexp.record.result import Stability
from llmexp.tasks.training.report.converged import NAIVE
from llmexp.tasks.training.report.row import TrainingRow

# At 95 %, more than one in fifty tables of equal methods, each measured three times, would tell one of them apart
# (`benchmarks trust`).
CONFIDENCE = 0.96
# These reasons against a run are in its interval or widen it; any other reason may have shifted the run as a whole.
IN_INTERVAL = ("noise", "drift", "warm-up")
SLOWER, FASTER, ALIKE, DISTURBED = (
    "slower than Naive",
    "faster",
    "not told apart from it",
    "not judged, because something stood in their way",
)


def conclusion(rows: Sequence[TrainingRow], named: Callable[[TrainingRow], str] = lambda row: row.method) -> list[str]:
    """Return a line for each run of Naive that was measured over several repeats, and other methods at the same work.

    The line says which methods' intervals overlap with Naive's. `named` tells a row from all others.
    """
    measured = [row for row in rows if _interval(row) and not row.is_control]
    beside: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in measured:
        if row.method != NAIVE:
            beside.setdefault(_work(row), []).append(row)
    pairs = [(row, beside[_work(row)]) for row in measured if row.method == NAIVE and _work(row) in beside]
    said = [(naive, _line(naive, others, named)) for naive, others in pairs]
    return [f"beside {named(naive)}: {line}" if len(said) > 1 else line for naive, line in said]


def _work(row: TrainingRow) -> tuple[str, ...]:
    return tuple(row.work.values())


def _line(naive: TrainingRow, others: Sequence[TrainingRow], named: Callable[[TrainingRow], str]) -> str:
    if _is_disturbed(naive):
        return "no method is judged beside Naive, because something stood in Naive's way"
    found: dict[str, list[str]] = {SLOWER: [], FASTER: [], ALIKE: [], DISTURBED: []}
    methods = [row.method for row in others]
    for row in others:
        found[_verdict(naive, row)].append(row.method if methods.count(row.method) == 1 else named(row))
    told = [f"{verdict}: {', '.join(names)}" for verdict, names in found.items() if names]
    return f"by the {100 * CONFIDENCE:.0f} % intervals of the repeats, {'; '.join(told)}"


def _verdict(naive: TrainingRow, row: TrainingRow) -> str:
    (low, high), (low_naive, high_naive) = _interval(row) or (0.0, 0.0), _interval(naive) or (0.0, 0.0)
    if _is_disturbed(row):
        return DISTURBED
    return SLOWER if high < low_naive else FASTER if low > high_naive else ALIKE


def _interval(row: TrainingRow) -> tuple[float, float] | None:
    """Return the interval of tokens_per_s between repeats, widened by the drift of the steps; None for one process."""
    judged, speed = _judged(row), row.rate
    known = of_repeats(speed) if judged and speed else None
    if judged is None or known is None:
        return None
    drifted = [
        ratio
        for word, ratio in (("drift", judged.drift_ratio), ("warm-up", judged.warmup_ratio))
        if ratio and _says(judged, word)
    ]
    wider = max((max(ratio, 1 / ratio) for ratio in drifted), default=1.0)
    low, high = known.ratio_interval(CONFIDENCE)
    return low / wider, high * wider


def _is_disturbed(row: TrainingRow) -> bool:
    judged = _judged(row)
    return (
        judged is not None
        and judged.verdict == "unstable"
        and any(not reason.startswith(IN_INTERVAL) for reason in judged.reasons)
    )


def _says(judged: Stability, word: str) -> bool:
    return any(reason.startswith(word) for reason in judged.reasons)


def _judged(row: TrainingRow) -> Stability | None:
    return row.result.stability if row.result and row.rate else None
