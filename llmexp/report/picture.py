"""A matplotlib figure without pyplot: no window, no global state, and the same look for all pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from llmexp.errors import RecordError
from llmexp.record.writing import temporary_for
from llmexp.report.columns import Whisker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#3b6ea5", "#c0703a", "#5b8c5a", "#8a5a9e", "#a33b4b", "#5f6b73")
INK = "#222222"
DOTS_PER_INCH = 120
TITLE_CHARACTERS_AN_INCH = 13
FORMATS = ("png", "svg", "pdf")


def can_draw() -> bool:
    """Tell whether matplotlib is installed; a node that only measures may lack it."""
    return find_spec("matplotlib") is not None


def new_figure(width_inch: float, height_inch: float, title: str) -> Figure:
    """Create a figure with a title and without panels; raises RecordError without matplotlib."""
    figure = empty_figure(width_inch, height_inch, DOTS_PER_INCH)
    lines = (wrap(line, int(width_inch * TITLE_CHARACTERS_AN_INCH)) for line in title.splitlines())
    figure.suptitle("\n".join(chain.from_iterable(lines)), fontsize=10)
    return figure


def empty_figure(width_inch: float, height_inch: float, dots_per_inch: int) -> Figure:
    """Create an empty figure whose panels will not overlap; raises RecordError without matplotlib."""
    if not can_draw():
        raise RecordError("no picture can be drawn: matplotlib is not installed here")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_inch, height_inch), dpi=dots_per_inch, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Remove lines that carry no information and draw a light grid along `grid` ('x' or 'y')."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


@dataclass(frozen=True)
class CurvePoint:
    """A measured point with the ends of its 95 % interval along y, and the sign of its run."""

    x: float
    y: float
    interval: Whisker | None = None
    sign: str = ""


def draw_curve(axes: Axes, points: Sequence[CurvePoint], color: str, **style: Any) -> None:
    """Draw a line through points, with a whisker for each interval and the signs beside their points."""
    axes.plot([point.x for point in points], [point.y for point in points], color=color, **style)
    known = [(point.x, *point.interval) for point in points if point.interval]
    if known:
        axes.vlines(*zip(*known, strict=True), color=color, linewidth=1.2)
    for point in points:
        if point.sign:
            place = (point.x, point.y)
            axes.annotate(point.sign, place, xytext=(4, 4), textcoords="offset points", fontsize=8, color=INK)


def save(figure: Figure, path: Path) -> None:
    """Write the picture in the format of its suffix, or raise RecordError on another suffix.

    It is written by rename, so that no reader sees half of it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise RecordError(f"{path}: a picture cannot be written as '{kind}': choices are {', '.join(FORMATS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_for(path)
    if kind == "png":
        FigureCanvasAgg(figure).print_png(temporary)  # savefig would go through the whole figure twice
    else:
        figure.savefig(temporary, format=kind)
    temporary.replace(path)


def named_beside(path: Path, what: str) -> Path:
    """Return the path of a further picture, which has `what` behind the name of the first."""
    return path.with_name(f"{path.stem}_{what}{path.suffix}")
