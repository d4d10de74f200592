"""The columns of the training table as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from llmexp.record.digits import three_digits
from llmexp.record.duration import duration
from llmexp.record.result import Metric
from llmexp.report.columns import Column
from llmexp.report.notes import ending_note, mark
from llmexp.report.ratio import RateRatio
from llmexp.report.row import OOM
from llmexp.training.failure_metrics import FAILURE_METRICS
from llmexp.training.metrics import METRICS
from llmexp.training.outside_metrics import outside_metrics
from llmexp.training.report.converged import DIVERGED
from llmexp.training.report.flops_column import flops_cell, flops_header, flops_unit
from llmexp.training.report.memory_column import memory_header, memory_unit
from llmexp.training.report.predicted_column import PREDICTED, over_predicted_cell
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.scaling_series import KINDS, Kind
from llmexp.training.report.searched_batch import batch_cell

if TYPE_CHECKING:
    from llmexp.training.report.section import TrainingSection

Cell = Callable[[TrainingRow], str]
# Each heading stands over one cell of Converged.cells; the number says which column is dropped first where there is no
# room.
LOSS_COLUMNS = (("final loss", 9), ("loss over baseline", 9), ("s to loss", 9))


def columns(report: TrainingSection) -> list[Column]:
    """Return all columns that are not empty for these rows."""
    found = [
        *report.identity_columns(),
        *_measured(report),
        *_compared(report),
        *_share_of_hardware(report),
        *(report.metric_column(spec) for spec in outside_metrics() if spec.column),
        *report.beside.columns("values"),
    ]
    return [column for column in found if not column.dispensable or any(column.cells)]


def _column(report: TrainingSection, header: str, cell: Cell, dispensable: int = 0) -> Column:
    return Column(header, tuple(cell(row) for row in report.rows), dispensable=dispensable)


def _metric(report: TrainingSection, name: str, value: Callable[[TrainingRow], Metric | None] | None = None) -> Column:
    return report.metric_column(METRICS[name], value)


def _finetuned(report: TrainingSection, name: str) -> Column:
    return _metric(report, name, lambda row: row.finetuned(name))


def _measured(report: TrainingSection) -> Iterator[Column]:
    """Yield speed, memory and time, with what fine-tuning asks besides."""
    numbers, divisor = report.numbers, memory_unit(report)[1]
    yield _column(report, "largest batch", lambda row: batch_cell(row) + mark(report.search_note(row), numbers), 11)
    yield report.rate_column()
    real = "real_tokens_per_s"
    yield _metric(report, real, lambda row: row.metric(real) if report.has_padding else None)
    yield _column(report, memory_header(report), lambda row: _memory(row, divisor))
    yield _finetuned(report, "samples_per_s")
    yield _column(report, "epoch", lambda row: _time(row.finetuned("epoch_time_s")), 4)
    yield _finetuned(report, "epoch_usd")
    yield _finetuned(report, "trainable_parameters")
    yield _column(report, "peak in", lambda row: row.peak_phase, 2)
    yield _metric(report, "step_time_s")
    for spec in FAILURE_METRICS.values():
        if spec.column and any(row.metric(spec.name) for row in report.rows):
            yield report.metric_column(spec)


def _compared(report: TrainingSection) -> Iterator[Column]:
    """Yield each row beside others of the table: Naive, the first engine, fewer ranks, the baseline's loss."""
    yield _column(report, "x Naive", lambda row: _ratio(report.over_naive(row)), 10)
    yield _column(report, f"x {report.first_engine}", lambda row: _ratio(report.over_first_engine(row)), 9)
    yield _column(report, PREDICTED, over_predicted_cell, 3)
    for kind in KINDS:
        yield _column(report, f"{kind} scaling %", partial(_efficiency, report, kind), 8)
    yield from report.beside.columns("scaling")
    for place, (header, dispensable) in enumerate(LOSS_COLUMNS):
        yield _column(report, header, partial(_loss, report, place), dispensable)


def _share_of_hardware(report: TrainingSection) -> Iterator[Column]:
    """Yield what a device computed, and what a joule and a dollar gave."""
    yield _metric(report, "mfu")
    yield _column(report, flops_header(report), partial(flops_cell, flops_unit(report)), 2)
    yield _metric(report, "tokens_per_joule")
    yield _metric(report, "tokens_per_usd")


def _ratio(ratio: RateRatio | None) -> str:
    return ratio.cell() if ratio else ""


def _memory(row: TrainingRow, divisor: float) -> str:
    if row.memory:
        return three_digits(row.memory[1] / divisor, ",.1f")
    return "-" if row.state == OOM else ""


def _efficiency(report: TrainingSection, kind: Kind, row: TrainingRow) -> str:
    share = report.efficiency(row, kind)
    return share.cell(1, 100) if share else ""


def _loss(report: TrainingSection, place: int, row: TrainingRow) -> str:
    one = report.converged.get(row.id)
    if not one:
        return ""
    cell = one.cells[place]
    return cell + mark(ending_note(row), report.numbers) if cell == DIVERGED else cell


def _time(metric: Metric | None) -> str:
    return duration(metric.mean) if metric else ""
