"""The table's column of FLOPs a second: one unit for all rows, with enough digits for the smallest."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING

from llmexp.training.report.row import TrainingRow

if TYPE_CHECKING:
    from llmexp.training.report.section import TrainingSection


FLOPS = "tflops_per_s_per_gpu"
_DIGITS = 3


@dataclass(frozen=True)
class Unit:
    """A unit of FLOPs: how many of it make a TFLOP, and its size as a power of ten."""

    name: str
    per_tflop: float
    power: int


UNITS = (Unit("TFLOP", 1.0, 12), Unit("GFLOP", 1e3, 9), Unit("MFLOP", 1e6, 6))


def flops_unit(report: TrainingSection) -> Unit:
    """Return the largest unit of which the fastest row reaches at least one a second."""
    largest = max((metric.mean for row in report.rows if (metric := row.metric(FLOPS))), default=1.0)
    return next((unit for unit in UNITS if largest * unit.per_tflop >= 1), UNITS[-1])


def flops_header(report: TrainingSection) -> str:
    """Return the column's heading with the unit of all rows."""
    return f"{flops_unit(report).name}/s per device"


def flops_cell(unit: Unit, row: TrainingRow) -> str:
    """Format three significant digits, or all digits before the point; empty where FLOPs are not known."""
    metric = row.metric(FLOPS)
    if metric is None or not metric.mean:
        return "" if metric is None else "0"
    value = metric.mean * unit.per_tflop
    return f"{value:,.{max(0, _DIGITS - 1 - floor(log10(abs(value))))}f}"


def flops_legend(report: TrainingSection) -> str:
    """Say what the column means; empty where no row has it."""
    unit = flops_unit(report)
    known = any(row.metric(FLOPS) for row in report.rows)
    return (
        f"{flops_header(report)}: the model's, recomputation left out; {unit.name} = 10^{unit.power} FLOPs"
        if known
        else ""
    )
