"""The columns of the table as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llmexp.record.duration import duration
from llmexp.record.result import Metric
from llmexp.report.converged import DIVERGED
from llmexp.report.flops_column import flops_cell, flops_header, flops_unit
from llmexp.report.memory_column import memory_header, memory_unit
from llmexp.report.notes import beside_note, ending_note, mark, notes_of, paper_note, scaling_note, unlike_note
from llmexp.report.ratio import over_paper
from llmexp.report.row import OOM, Row
from llmexp.report.scaling_series import KINDS, Kind, paper_of
from llmexp.report.signs import PARTLY_TRAINED, deviation, doubt_sign
from llmexp.report.table import Report

# What each cell of Converged.cells stands under, and when it goes where there is no room.
LOSS_COLUMNS = (("final loss", 9), ("loss over baseline", 9), ("s to loss", 9))


@dataclass(frozen=True)
class Column:
    """One column: its heading with the unit, its cells, and which goes first where there is no room (0: never)."""

    header: str
    cells: tuple[str, ...]
    left: bool = False
    dispensable: int = 0


def columns(report: Report) -> list[Column]:
    """All columns that say something about these rows, in the paper's order."""
    unit, divisor = memory_unit(report)
    notes = notes_of(report)

    def column(header: str, cell: Callable[[Row], str], dispensable: int = 0) -> Column:
        return Column(header, tuple(cell(row) for row in report.rows), dispensable=dispensable)

    facets = [name for name in _facets(report) if name not in ("task", "model")]
    found = [
        Column("model", tuple(row.model for row in report.rows), left=True),
        Column("method", tuple(row.method + PARTLY_TRAINED * row.partly_trained for row in report.rows), left=True),
        *(Column(name, tuple(report.shown(row)[name] for row in report.rows), left=True) for name in facets),
        Column("asked for", tuple(report.own_words[row.plan["id"]] for row in report.rows), left=True, dispensable=10),
        column("stack", lambda row: row.result.stack if row.result and report.has_several_stacks else "", 7),
        column("tokens/s", lambda row: _speed(row, notes)),
        column("real tokens/s", lambda row: _mean(row.metric("real_tokens_per_s"), ",.1f") if report.has_padding else "", 9),
        column(memory_header(report), lambda row: _memory(row, divisor)),
        column("samples/s", lambda row: _mean(row.finetuned("samples_per_s"), ",.2f"), 3),
        column("epoch", lambda row: _time(row.finetuned("epoch_time_s")), 4),
        column("epoch USD", lambda row: _mean(row.finetuned("epoch_usd"), ",.2f"), 4),
        column("trained M", lambda row: _mean(row.finetuned("trainable_parameters"), ",.2f", 1e-6), 5),
        column("peak in", lambda row: row.peak_phase, 2),
        column("step time s", lambda row: _mean(row.metric("step_time_s"), ".3f"), 4),
        column("x Naive", lambda row: ratio.cell() if (ratio := report.over_naive(row)) else "", 5),
        *(column(f"{kind} scaling %", partial(_efficiency, report, kind), 8) for kind in KINDS),
        column("paper scaling %", lambda row: _paper_efficiency(report, notes, row), 8),
        *(column(header, partial(_loss, report, notes, place), rank) for place, (header, rank) in enumerate(LOSS_COLUMNS)),
        column("MFU %", lambda row: _mean(row.metric("mfu"), ".1f", 100), 6),
        column(flops_header(report), partial(flops_cell, flops_unit(report)), 2),
        column("tokens/J", lambda row: _mean(row.metric("tokens_per_joule"), ".2f"), 1),
        column("paper tokens/s", lambda row: _paper_speed(row, notes), 8),
        column("x paper", lambda row: (ratio.cell() if (ratio := over_paper(row)) else "") + mark(unlike_note(row), notes).lstrip(), 7),
        column(f"paper {unit}", lambda row: _paper_memory(row, divisor), 3),
        column(f"{unit} x paper", lambda row: _number(row.memory_over_paper, ".2f"), 1),
    ]
    return [column for column in found if not column.dispensable or any(column.cells)]


def _facets(report: Report) -> list[str]:
    return [name for name in (report.rows[0].work if report.rows else {}) if name not in report.shared]


def _speed(row: Row, notes: list[str]) -> str:
    rate = row.metric("tokens_per_s")
    if rate:
        sign = f" {doubt_sign(row)}{mark(row.doubt, notes)}" if row.doubt else ""
        return f"{rate.mean:,.1f}{deviation(rate)}{sign}{mark(beside_note(row), notes)}{mark(ending_note(row), notes)}"
    return "-" if row.state == OOM else row.state + mark(ending_note(row), notes)


def _memory(row: Row, divisor: float) -> str:
    if row.memory:
        return f"{row.memory[1] / divisor:,.1f}"
    return "-" if row.state == OOM else ""


def _efficiency(report: Report, kind: Kind, row: Row) -> str:
    share = report.efficiency(row, kind)
    return share.cell(1, 100) if share else ""


def _paper_efficiency(report: Report, notes: list[str], row: Row) -> str:
    paper = paper_of(row) if report.efficiency(row, "weak") is not None else None
    return _number(paper.percent, ".1f") + mark(scaling_note(row), notes) if paper else ""


def _loss(report: Report, notes: list[str], place: int, row: Row) -> str:
    one = report.converged.get(row.plan["id"])
    if not one:
        return ""
    cell = one.cells[place]
    return cell + mark(ending_note(row), notes) if cell == DIVERGED else cell


def _paper_speed(row: Row, notes: list[str]) -> str:
    if not row.paper:
        return ""
    return _number(row.paper.tokens_per_s, ",.1f") + mark(paper_note(row), notes) if not row.paper.oom else "-"


def _paper_memory(row: Row, divisor: float) -> str:
    if not row.paper:
        return ""
    return "-" if row.paper.memory_bytes is None else f"{row.paper.memory_bytes / divisor:,.1f}"


def _mean(metric: Metric | None, form: str, factor: float = 1) -> str:
    return _number(metric.mean * factor if metric else None, form)


def _time(metric: Metric | None) -> str:
    return duration(metric.mean) if metric else ""


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
