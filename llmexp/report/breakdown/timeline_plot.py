"""One step's timeline as a picture: rows for phases, computation by module, communication, copies and idle time."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.record.timeline import COMMUNICATION, COMPUTATION, COPIES, IDLE, PHASE, Timeline
from llmexp.report.breakdown import parts
from llmexp.report.breakdown.plot import FIXED, colors_of
from llmexp.report.picture import INK, new_figure, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PHASE_COLORS = ("#cfe0f1", "#fbdcc0", "#d5ead3", "#e3d7ee", "#f6e7b4")
ROW_COLORS = {
    COMMUNICATION: FIXED[parts.COMMUNICATION],
    COPIES: FIXED[parts.COPIES],
    IDLE: "#8a8f94",
}
# Kinds of work, in a trace that has no modules.
KIND_COLORS = (
    "#7fa8d1",
    "#e6a76a",
    "#93c48e",
    "#c99fd6",
    "#e08e8e",
    "#b59a83",
    "#d8c65c",
    "#8fc7c7",
    "#a7adb3",
    "#d7a9c4",
)
# Points: a single copy is shorter than a pixel. Idle time, of which there are thousands of pieces, has no such edge.
THINNEST = 0.5
# A letter takes about this share of the axis.
LETTER = 0.0068


def draw_timeline(found: Timeline, title: str, path: Path) -> None:
    """Draw the rows that have something; phases are named in their bars where there is room, all else in the legend."""
    from matplotlib.patches import Patch

    second = " ".join(word for word in (found.source, found.step) if word and word != title)
    figure = new_figure(12, 1.9 + 0.42 * len(found.rows), f"{title}\n{second}".strip())
    axes = figure.subplots()
    plain(axes, grid="x")
    for place, row in enumerate(found.rows):
        _draw_row(axes, found, row, place)
    axes.set_yticks(range(len(found.rows)), found.rows, fontsize=8)
    axes.set_ylim(len(found.rows) - 0.45, -0.55)
    axes.set_xlim(0, found.length_ms)
    axes.set_xlabel("ms from the begin of the step" if found.step else "ms from the begin of the trace", fontsize=9)
    named = {text.get_text() for text in axes.texts}
    explained = {label: color for label, color in _colors(found, PHASE).items() if label not in named}
    explained |= _colors(found, COMPUTATION)
    handles: list[Any] = [Patch(color=color, label=label) for label, color in explained.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=8, fontsize=7, frameon=False)
    save(figure, path)


def _draw_row(axes: Axes, found: Timeline, row: str, place: int) -> None:
    for label, color in _colors(found, row).items():
        bars = found.bars[row, label]
        thin = {} if row not in (COMMUNICATION, COPIES) else {"edgecolors": color}
        axes.broken_barh(bars, (place - 0.36, 0.72), facecolors=color, linewidth=THINNEST * bool(thin), **thin)
        for begin, length in bars if row == PHASE else ():
            if length > LETTER * len(label) * found.length_ms:
                axes.text(begin + length / 2, place, label, ha="center", va="center", fontsize=7, color=INK)


def _colors(found: Timeline, row: str) -> dict[str, Any]:
    """Return the color of each label of a row; modules have those that they have in the other pictures."""
    labels = found.labels(row)
    if row == COMPUTATION:
        known = {label: color for label, color in colors_of(labels).items() if label in labels}
        return known if {*labels} & {*parts.ORDER} else dict(zip(labels, cycle(KIND_COLORS), strict=False))
    if row == PHASE:
        return {label: PHASE_COLORS[number % len(PHASE_COLORS)] for number, label in enumerate(labels)}
    return dict.fromkeys(labels, ROW_COLORS[row])
