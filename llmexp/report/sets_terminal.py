"""The comparison of two sets on a terminal: what they differ in, a line for each row, and a sentence for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from llmexp.analysis.many_rows import ERROR
from llmexp.analysis.sameness import UNKNOWN
from llmexp.report.baseline import Measured
from llmexp.report.cells import in_unit
from llmexp.report.columns import Column
from llmexp.report.compare import Difference
from llmexp.report.screen import as_table, console, write
from llmexp.report.sets import PairedRow, SetComparison

MOST_DIFFERENCES = 8


def print_sets(found: SetComparison, file: TextIO | None = None, legend: str = "") -> None:
    """Print a comparison of two sets, b against a; `legend` says how the rows were judged, where not as sets are."""
    screen = console(file)
    for title, differences in (("settings", found.settings), ("environment", found.environment)):
        write(screen, f"differs in {title}: {_listed(differences)}")
    screen.print(as_table(_columns(found)))
    for row in found.rows:
        if row.reason:
            write(screen, f"{row.name}: {row.reason}")
    for reason, unknown in _trainings_unknown(found).items():
        write(screen, f"cannot tell whether the same training: {reason} ({', '.join(unknown)})")
    for side, names in (("first", found.only_a), ("second", found.only_b)):
        if names:
            write(screen, f"only in the {side} set: {', '.join(names)}")
    if found.repeated:
        which = "the repeats of all count" if found.pooled else "the last to end counts; --pool counts all"
        write(screen, f"{found.repeated} more measure the same as another run of their set: {which}")
    write(screen, legend or _legend(found), "dim")
    write(screen, _sentence(found))


def _trainings_unknown(found: SetComparison) -> dict[str, list[str]]:
    """Return the names of the rows of which nobody can tell whether both did the same training, by the reason."""
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if row.training and row.training.answer == UNKNOWN:
            reasons.setdefault(row.training.reason, []).append(row.name)
    return reasons


def _listed(differences: Sequence[Difference]) -> str:
    said = [f"{one.key} {one.a or 'not set'} → {one.b or 'not set'}" for one in differences[:MOST_DIFFERENCES]]
    more = len(differences) - len(said)
    return ", ".join(said) + f", and {more} more" * (more > 0) if said else "nothing"


def _columns(found: SetComparison) -> list[Column]:
    rows = found.rows
    return [
        Column("row", tuple(row.name for row in rows), left=True),
        Column(f"a: {found.metric}", tuple(_figure(row.a, found) for row in rows)),
        Column("b", tuple(_figure(row.b, found) for row in rows)),
        Column("n", tuple(_repeats(row, found.metric) for row in rows)),
        Column("b/a", tuple(_ratio(row) for row in rows)),
        Column("p", tuple(f"{row.verdict.p:.2g}" if row.verdict and row.verdict.p is not None else "" for row in rows)),
        Column("verdict", tuple(_word(row, found) for row in rows), left=True),
    ]


def _figure(side: Measured, found: SetComparison) -> str:
    value = side.metrics.get(found.metric)
    return in_unit(value.mean, found.unit) if value else ""


def _repeats(row: PairedRow, metric: str) -> str:
    counts = [str(side.metrics[metric].n) if metric in side.metrics else "-" for side in (row.a, row.b)]
    return counts[0] if counts[0] == counts[1] else "/".join(counts)


def _ratio(row: PairedRow) -> str:
    if not row.verdict or not row.verdict.estimate:
        return ""
    low, high = row.verdict.estimate.ratio_interval()
    return f"{row.verdict.estimate.ratio:.3f} ({low:.3f} to {high:.3f})"


def _word(row: PairedRow, found: SetComparison) -> str:
    if row.outcome == "within":
        return "within noise"
    if row.outcome == "unknown":
        return "cannot tell"
    if row.outcome in ("better", "worse"):
        return direction(row.outcome, found)
    return row.outcome


def direction(outcome: str, found: SetComparison) -> str:
    """Return faster and slower for a rate, better and worse for anything else."""
    is_rate = all(found.metric == side.rate for row in found.rows for side in (row.a, row.b))
    return {"better": "faster", "worse": "slower"}[outcome] if is_rate else outcome


def _legend(found: SetComparison) -> str:
    better, worse = direction("better", found), direction("worse", found)
    return (
        f"{better} or {worse}: equality is rejected (Welch's t on the logarithms, p corrected by Holm for all rows, "
        f"below {ERROR:g}) and b/a is over {found.margin:.3g} from 1; within noise: two one-sided tests show that b/a "
        "is less than that from 1; b/a with its own 95 % interval; n repeats"
    )


def _sentence(found: SetComparison) -> str:
    words = [_word(row, found) for row in found.rows]
    counts = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    return f"{len(words)} row{'s' * (len(words) != 1)} in both: {', '.join(counts)}"
