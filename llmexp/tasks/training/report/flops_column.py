"""What a table tells of FLOPs a second: in one unit for all rows, with digits enough for the smallest."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING

from llmexp.tasks.training.report.row import TrainingRow

if TYPE_CHECKING:
    from llmexp.tasks.training.report.section import TrainingSection


FLOPS = "tflops_per_s_per_gpu"
_DIGITS = 3


@dataclass(frozen=True)
class Unit:
    """A unit, how many of it make a TFLOP, and its FLOPs as a power of ten."""

    name: str
    per_tflop: float
    power: int


UNITS = (Unit("TFLOP", 1.0, 12), Unit("GFLOP", 1e3, 9), Unit("MFLOP", 1e6, 6))


def flops_unit(report: TrainingSection) -> Unit:
    """One for all rows: the largest of which the fastest row reaches one."""
    largest = max((metric.mean for row in report.rows if (metric := row.metric(FLOPS))), default=1.0)
    return next((unit for unit in UNITS if largest * unit.per_tflop >= 1), UNITS[-1])


def flops_header(report: TrainingSection) -> str:
    """The unit of all rows."""
    return f"{flops_unit(report).name}/s per device"


def flops_cell(unit: Unit, row: TrainingRow) -> str:
    """Three digits that say something, more before the point where there are; empty where nobody knows the FLOPs."""
    metric = row.metric(FLOPS)
    if metric is None or not metric.mean:
        return "" if metric is None else "0"
    value = metric.mean * unit.per_tflop
    return f"{value:,.{max(0, _DIGITS - 1 - floor(log10(abs(value))))}f}"


def flops_legend(report: TrainingSection) -> str:
    """What the column means; empty where there is none."""
    unit = flops_unit(report)
    known = any(row.metric(FLOPS) for row in report.rows)
    return (
        f"{flops_header(report)}: the model's, recomputation left out; {unit.name} = 10^{unit.power} FLOPs"
        if known
        else ""
    )
