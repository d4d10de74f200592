"""The comparison of two sides that were measured in turns, with verdicts by blocks and a control."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llmexp.analysis.blocked import RoundBlock, blocked_verdicts, over_blocks, shown_by
from llmexp.analysis.inference import Estimate
from llmexp.analysis.many_rows import RowsVerdict
from llmexp.analysis.metric import Better
from llmexp.errors import ConfigError
from llmexp.registry import get_task
from llmexp.report.baseline import Measured
from llmexp.report.sets import PairedRow, SetComparison, compare_sets

MeasuredBlock = tuple[Measured, Measured]


@dataclass(frozen=True)
class BlockedComparison:
    """Two sides beside each other by blocks; `counts_beyond` is the least difference that counts, by the control."""

    sets: SetComparison
    control: Estimate | None
    counts_beyond: float
    unstable: tuple[str, ...]
    """For each row with turns that were unstable by themselves: its name, how many, and why."""


def compare_blocks(
    blocks: Sequence[MeasuredBlock], control: Sequence[MeasuredBlock], margin: float, metric: str | None = None
) -> BlockedComparison:
    """Compare b with a, by a metric or else the task's rate, by the blocks (a, b) of all rows and of a against itself.

    What made a single turn unstable rules no difference out: it meets both sides, or makes a row's blocks differ.
    Raises ConfigError where a was measured in no row, or the versions of one side changed on the way.
    """
    if not any(a.is_measured for a, _ in blocks):
        raise ConfigError(f"the first side measured nothing: {blocks[0][0].state}: {blocks[0][0].reason}")
    a, b = (_failures_last([_judged_by_blocks(block[side]) for block in blocks]) for side in (0, 1))
    for side, turns in (("first", a), ("second", b)):
        _check_unchanged(side, turns)
    metric = metric or next(one.rate for one in a if one.is_measured)
    found = compare_sets(a, b, metric, margin, pooled=True)
    shown = over_blocks(_values(control, metric))
    compared = [row for row in found.rows if row.verdict]
    by_row = [_values([one for one in blocks if one[0].settings == row.a.settings], metric) for row in compared]
    verdicts = iter(blocked_verdicts(by_row, shown, margin))
    better = get_task(blocks[0][0].settings["task.name"]).metrics[metric].better
    beyond = shown_by(shown, margin)
    rows = tuple(_row(row, next(verdicts), better, beyond) if row.verdict else _failed(row) for row in found.rows)
    unstable = tuple(_unstable(row, blocks) for row in rows)
    return BlockedComparison(replace(found, rows=rows, repeated=0), shown, beyond, tuple(filter(None, unstable)))


def _judged_by_blocks(turn: Measured) -> Measured:
    return turn.model_copy(update={"unstable": ""})


def _check_unchanged(side: str, turns: Sequence[Measured]) -> None:
    """Raise ConfigError where a side's turns were measured with other code, versions or hardware than its last."""
    measured = [turn.environment for turn in turns if turn.is_measured]
    for one in measured:
        if key := next((key for key in {**one, **measured[-1]} if one.get(key) != measured[-1].get(key)), None):
            values = f"{one.get(key, 'not known')} and {measured[-1].get(key, 'not known')}"
            raise ConfigError(f"the turns of the {side} side differ in {key}, {values}: rerun=all measures all again")


def _failures_last(turns: Sequence[Measured]) -> list[Measured]:
    """Leave out the measured turns of a row of which another turn failed, so that the row counts as failed."""
    failed = [turn.settings for turn in turns if not turn.is_measured]
    return [turn for turn in turns if not turn.is_measured or turn.settings not in failed]


def _values(blocks: Iterable[MeasuredBlock], metric: str) -> list[RoundBlock]:
    measured = [(a.metrics.get(metric), b.metrics.get(metric)) for a, b in blocks if a.is_measured and b.is_measured]
    return [(a.mean, b.mean) for a, b in measured if a and b]


def _row(row: PairedRow, verdict: RowsVerdict, better: Better, beyond: float) -> PairedRow:
    if verdict.answer == "within":
        return replace(row, outcome="within", verdict=verdict, reason="")
    if verdict.answer == "unknown":
        return replace(row, outcome="unknown", verdict=verdict, reason=_why(verdict, beyond))
    return replace(row, outcome="better" if verdict.answer == better else "worse", verdict=verdict, reason="")


def _why(verdict: RowsVerdict, beyond: float) -> str:
    if verdict.estimate is None:
        return "one block does not show how much blocks differ: set --repeats 4 or more"
    if verdict.repeats is not None:
        return f"about --repeats {verdict.repeats} would settle it"
    if abs(verdict.estimate.ratio - 1) <= beyond:
        return f"a against itself was as far apart ({beyond:.1%}): find what disturbs this machine"
    return "more than 50 blocks would be needed: find what makes them differ, or choose another margin"


def _failed(row: PairedRow) -> PairedRow:
    """Return a row without a verdict; of one that only b has lost it says that both were measured side by side."""
    if row.outcome != "lost":
        return row
    return replace(row, reason=f"measured with the first side, and with the second {row.b.state}: {row.b.reason}")


def _unstable(row: PairedRow, blocks: Sequence[MeasuredBlock]) -> str:
    turns = [turn for block in blocks if block[0].settings == row.a.settings for turn in block]
    reasons = [turn.unstable for turn in turns if turn.unstable]
    return f"{row.name}: {len(reasons)} of {len(turns)} turns ({reasons[0]})" if reasons else ""
