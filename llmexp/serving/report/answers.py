"""The table of serve.quality: whether each server's answers are those of its weights, and what tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from llmexp.record.digits import rounded
from llmexp.record.reading import read_text
from llmexp.report.columns import ReportTable
from llmexp.report.row import Row
from llmexp.serving.record.quality import QualitySummary
from llmexp.serving.record.summary import ServingSummary

TITLE = "answers beside one process's"
HEADERS = ("run", "answers", "tokens that count", "agreeing", "margin above, nats", "logprobs differ, nats", "by noise")
LEGEND = (
    "answers: greedy ones to a fixed set after the loads; tokens count where one process of transformers prefers its "
    "likeliest one by more than rounding explains; logprobs: median differences"
)
_WORST = ("changed", "not told", "same")


def answers_of_row(row: Row) -> QualitySummary | None:
    """Return the verdict on a run, of its repeats the one that speaks most against it; None where none was asked."""
    was_asked = row.result is not None and "answers" in row.result.what_ran
    repeats = row.folder.repeats() if was_asked else []
    found = [quality for repeat in repeats if (quality := _of_repeat(repeat))]
    return min(found, key=lambda each: _WORST.index(each.verdict), default=None)


def answers_table(rows: Sequence[Row], label: Callable[[Row], str]) -> ReportTable | None:
    """Return the table of all runs that were asked; None where none was."""
    found = [(label(row), quality) for row in rows if (quality := answers_of_row(row))]
    if not found:
        return None
    cells = [(name, *_cells(quality)) for name, quality in found]
    table = ReportTable.of_rows(TITLE, HEADERS, cells, right=HEADERS[2:])
    reasons = [f"answers of {name}: {quality.words}" for name, quality in found if quality.verdict != "same"]
    return ReportTable(table.title, table.columns, [LEGEND, *reasons], explained=[LEGEND])


def changed_lines(rows: Sequence[Row], label: Callable[[Row], str]) -> Iterator[str]:
    """Yield a sentence for each server whose answers changed: its speed is not one of the same work."""
    for row in rows:
        quality = answers_of_row(row)
        if quality and quality.verdict == "changed":
            why = f", as {' and '.join(quality.expected)} lets expect" if quality.expected else ""
            yield f"{label(row)} gives other answers than its weights{why}: its speed is not that of the same work."


def _of_repeat(repeat: Path) -> QualitySummary | None:
    try:
        return ServingSummary.model_validate_json(read_text(repeat / "rank.0.json")).quality
    except (OSError, ValueError):
        return None


def _cells(quality: QualitySummary) -> tuple[str, ...]:
    expected = " (expected)" * (quality.verdict == "changed" and bool(quality.expected))
    numbers = (quality.noise_nats, quality.logprob_difference_p50_nats, quality.logprob_noise_p50_nats)
    noise, difference, by_noise = ("" if number is None else rounded(number) for number in numbers)
    counts = (str(quality.counted_tokens), str(quality.agreeing_tokens)) if quality.noise_nats is not None else ("", "")
    return (quality.verdict + expected, *counts, noise, difference, by_noise)
