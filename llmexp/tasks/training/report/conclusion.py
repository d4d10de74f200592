"""The conclusion of a table on each method beside Naive: slower, faster, or not told apart by the spread of repeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def conclusion(rows: Sequence[TrainingRow]) -> list[str]:
    """Return a line for each kind of work that was measured with Naive and other methods over several repeats.

    The line says which methods' intervals overlap with Naive's.
    """
    measured = [row for row in rows if _interval(row) and not row.is_control]
    beside: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in measured:
        if row.method != NAIVE:
            beside.setdefault(_work(row), []).append(row)
    pairs = ((row, beside.get(_work(row))) for row in measured if row.method == NAIVE)
    return [_line(naive, others) for naive, others in pairs if others]


def _work(row: TrainingRow) -> tuple[str, ...]:
    return tuple(row.work.values())


def _line(naive: TrainingRow, others: Iterable[TrainingRow]) -> str:
    if _is_disturbed(naive):
        return "no method is judged beside Naive, because something stood in Naive's way"
    found: dict[str, list[str]] = {SLOWER: [], FASTER: [], ALIKE: [], DISTURBED: []}
    for row in others:
        found[_verdict(naive, row)].append(row.method)
    told = [f"{verdict}: {', '.join(methods)}" for verdict, methods in found.items() if methods]
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
