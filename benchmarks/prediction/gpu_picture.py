"""Predicted over measured tokens/s and memory of GPU rows as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.prediction.gpu_rows import CARDS, GpuRow
from llmexp.report.picture import COLORS, INK, new_figure, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAND = 0.1
_GB = 1e9
Point = tuple[float, float]


def draw(rows: Sequence[GpuRow], path: Path) -> None:
    """Write the picture: a panel of speeds and one of the allocator's peaks; rows of the fit are hollow."""
    figure = new_figure(10.5, 4.6, f"this project's GPU rows; gray: within {100 * _BAND:.0f} %; hollow: in the fit")
    speeds, memory = figure.subplots(1, 2)
    for color, card in zip(COLORS, CARDS, strict=False):
        of_card = [row for row in rows if row.card == card]
        fresh, fitted = (
            [_speed(row) for row in of_card if row.off is not None and row.is_fitted is is_fitted]
            for is_fitted in (False, True)
        )
        _scatter(speeds, fresh, color, card)
        _scatter(speeds, fitted, color, f"{card}, in the fit", hollow=True)
        _scatter(memory, [_memory(row) for row in of_card if row.memory_off is not None], color, card)
    _finish(speeds, "tokens/s")
    _finish(memory, "peak allocated, GB")
    save(figure, path)


def _speed(row: GpuRow) -> Point:
    assert row.measured
    assert row.prediction
    return row.measured, row.prediction.rate


def _memory(row: GpuRow) -> Point:
    assert row.allocated
    assert row.fit
    return row.allocated / _GB, row.fit.tensors / _GB


def _scatter(axes: Axes, points: Sequence[Point], color: str, label: str, *, hollow: bool = False) -> None:
    if points:
        measured, predicted = zip(*points, strict=True)
        face = "white" if hollow else color
        axes.scatter(measured, predicted, s=26, facecolor=face, edgecolor=color, label=label, zorder=3)


def _finish(axes: Axes, what: str) -> None:
    """Draw the line of equals with its band from nothing to the largest value."""
    plain(axes, grid="y")
    end = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([0, end], [0, end], color=INK, linewidth=0.8)
    axes.fill_between([0, end], [0, end * (1 - _BAND)], [0, end * (1 + _BAND)], color="#e4e4e4", zorder=0)
    axes.set(xlim=(0, end), ylim=(0, end))
    axes.set_xlabel(f"measured {what}", fontsize=9)
    axes.set_ylabel(f"predicted {what}", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
