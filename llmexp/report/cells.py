"""What stands in a cell of a table: a rate with its sign, a mean, the words that tell a run from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmexp.record.digits import rounded, three_digits
from llmexp.record.result import Metric
from llmexp.report.notes import beside_note, ending_note, interruption_note, mark, power_note
from llmexp.report.row import OOM, Row
from llmexp.report.signs import doubt_sign, with_spread

_NAMED_ELSEWHERE = ("engine.options.command=",)
# How metrics of these units are written: losses with four places, and counts in full.
_FORMS = {"nats": ",.4f", "parameters": ",.0f", "steps": ",.0f", "tokens": ",.0f"}


def own_words(rows: Sequence[Row]) -> list[str]:
    """Return for each run the words of its command that some other runs lack.

    The name fields, the program and the group of an equal name are left out, as they have columns of their own.
    """
    words = [[word for word in row.words if not _named_elsewhere(row, word.lstrip("+"))] for row in rows]
    shared = set(words[0]).intersection(*words) if words else set()
    return [" ".join(word for word in own if word not in shared) for own in words]


def _named_elsewhere(row: Row, word: str) -> bool:
    elsewhere = (*_NAMED_ELSEWHERE, *(f"{name}=" for name in row.plan.name_fields))
    return word.startswith(elsewhere) or word in {f"{name}={value}" for name, value in row.comparison_key.items()}


def rate_cell(row: Row, numbers: Mapping[str, int]) -> str:
    """Return a row's rate with deviation, sign and the numbers of its notes, or how the run ended without one."""
    if row.rate:
        sign = f" {doubt_sign(row)}{mark(row.doubt, numbers)}" if row.doubt else ""
        marks = (mark(note(row), numbers) for note in (beside_note, interruption_note, power_note, ending_note))
        return f"{with_spread(row.rate)}{sign}{''.join(marks)}"
    return "-" if row.state == OOM else row.state + mark(ending_note(row), numbers)


def mean_of(metric: Metric | None, form: str, factor: float = 1.0) -> str:
    """Format a metric's mean as a cell; empty where there is none."""
    return "" if metric is None else three_digits(metric.mean * factor, form)


def in_unit(value: float, unit: str) -> str:
    """Return a metric's value with three significant digits, losses and counts with theirs."""
    return format(value, _FORMS[unit]) if unit in _FORMS else rounded(value)
