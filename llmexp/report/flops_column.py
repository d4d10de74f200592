"""What a table tells of FLOPs a second: in one unit for all rows, with digits enough for the smallest."""

from __future__ import annotations

from math import floor, log10

from llmexp.report.row import Row
from llmexp.report.table import Report

FLOPS = "tflops_per_s_per_gpu"
_DIGITS = 3
# Each unit, how many of it make a TFLOP, and its FLOPs as a power of ten.
_UNITS = (("TFLOP", 1.0, 12), ("GFLOP", 1e3, 9), ("MFLOP", 1e6, 6))


def flops_header(report: Report) -> str:
    """The unit of all rows."""
    return f"{_unit(report)[0]}/s per device"


def flops_cell(report: Report, row: Row) -> str:
    """Three digits that say something, more before the point where there are; empty where nobody knows the FLOPs."""
    metric = row.metric(FLOPS)
    if metric is None or not metric.mean:
        return "" if metric is None else "0"
    value = metric.mean * _unit(report)[1]
    return f"{value:,.{max(0, _DIGITS - 1 - floor(log10(abs(value))))}f}"


def flops_legend(report: Report) -> str:
    """What the column means; empty where there is none."""
    name, _, power = _unit(report)
    known = any(row.metric(FLOPS) for row in report.rows)
    return f"{flops_header(report)}: the model's, recomputation left out; {name} = 10^{power} FLOPs" if known else ""


def _unit(report: Report) -> tuple[str, float, int]:
    """The largest of which the fastest row reaches one."""
    largest = max((metric.mean for row in report.rows if (metric := row.metric(FLOPS))), default=1.0)
    return next((unit for unit in _UNITS if largest * unit[1] >= 1), _UNITS[-1] if largest else _UNITS[0])
