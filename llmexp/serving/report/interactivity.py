"""Throughput against interactivity: the tokens a second of a device over those that one user sees, a point a load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.analysis.inference import mean_interval
from llmexp.report.columns import Whisker
from llmexp.report.picture import COLORS, CurvePoint, draw_curve, new_figure, plain, save
from llmexp.report.row import Row
from llmexp.report.signs import doubt_sign
from llmexp.serving.report.loads import Load, loads_of

TOKENS = "output_tokens_per_s_per_device"
TOKENS_LABEL = "output tokens/s per device"
USER_LABEL = "output tokens/s of one user (1 / median TPOT)"
MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class UserSpeed:
    """A load with the tokens a second that one user sees, and those of a device."""

    load: Load
    user: float
    tokens: float

    @property
    def interval(self) -> Whisker | None:
        """The 95 % interval of the tokens a second by the repeats."""
        found = self.load.point.metrics.get(TOKENS)
        return mean_interval(found) if found else None


def user_speeds(loads: Iterable[Load]) -> list[tuple[Row, list[UserSpeed]]]:
    """Return the loads of each run that have both speeds, from the lowest speed of a user."""
    by_run: dict[Path, tuple[Row, list[UserSpeed]]] = {}
    for load in loads:
        tokens, tpot_s = load.mean(TOKENS), load.mean("tpot_p50_s")
        if tokens and tpot_s:
            by_run.setdefault(load.row.folder.path, (load.row, []))[1].append(UserSpeed(load, 1 / tpot_s, tokens))
    return [(row, sorted(points, key=lambda point: point.user)) for row, points in by_run.values()]


def draw_interactivity(rows: Sequence[Row], title: str, label: Callable[[Row], str], path: Path) -> bool:
    """Draw the loads of each run as a line; return False for less than two points."""
    by_run = user_speeds(loads_of(rows))
    if sum(len(points) for _, points in by_run) < 2:
        return False
    known = any(point.interval for _, points in by_run for point in points)
    whiskers = "; whiskers: 95 % intervals by the repeats" * known
    figure = new_figure(6.5, 4.8, f"{title}\nthroughput against interactivity{whiskers}")
    axes = figure.subplots()
    plain(axes, grid="y")
    for number, (row, points) in enumerate(by_run):
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        name = f"{label(row)} {doubt_sign(row)}".rstrip()
        curve = [CurvePoint(point.user, point.tokens, point.interval) for point in points]
        draw_curve(axes, curve, color, marker=marker, markersize=5, linewidth=1.2, label=name)
        for point in points:
            place = (point.user, point.tokens)
            axes.annotate(point.load.name, place, xytext=(5, 4), textcoords="offset points", fontsize=7, color=color)
    axes.set_xlim(0, 1.1 * axes.get_xlim()[1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(USER_LABEL, fontsize=9)
    axes.set_ylabel(TOKENS_LABEL, fontsize=9)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    save(figure, path)
    return True
