"""Cumulative distributions of latencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.record.samples import read_samples
from llmexp.report.picture import COLORS, new_figure, plain, save
from llmexp.report.row import Row
from llmexp.serving.analysis.request_latency import latencies
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.points import read_begun
from llmexp.serving.record.requests import RequestSample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {
    "ttft": "time to first token (s)",
    "end_to_end": "end-to-end latency (s)",
    "tpot": "time per output token (s)",
}
# Every answered request has this one.
_OF_ALL = "end_to_end"
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Line:
    """The answered requests of a load point, with the numbers of its run and of itself."""

    label: str
    run: int
    load: int
    samples: list[RequestSample]

    def look(self, several_runs: bool) -> dict[str, str]:
        """Return color and style: colors tell runs apart and styles loads, or colors the loads of a single run."""
        color = self.run if several_runs else self.load
        style = self.load if several_runs else self.load // len(COLORS)
        return {"color": COLORS[color % len(COLORS)], "linestyle": STYLES[style % len(STYLES)]}


def draw_distributions(rows: Sequence[Row], title: str, label: Callable[[Row], str], path: Path) -> bool:
    """Draw the distributions of every load point of every run; return False where no request was answered."""
    lines = lines_of(rows, label)
    # One token has no time per token, and what is not streamed has no first one.
    kinds = [kind for kind in PANELS if any(latencies(line.samples)[kind] for line in lines)]
    if not kinds:
        return False
    figure = new_figure(12.5, 4.4 + 0.09 * len(lines), f"{title}\nlatencies count from when a request was due")
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        _draw_panel(axes, kind, lines)
        axes.set_xlabel(PANELS[kind], fontsize=9)
    handles, labels = figure.axes[kinds.index(_OF_ALL)].get_legend_handles_labels()
    figure.axes[0].set_ylabel("share of requests", fontsize=9)
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, path)
    return True


def lines_of(rows: Sequence[Row], label: Callable[[Row], str]) -> list[Line]:
    """Return the answered requests of every load point of every run."""
    return [line for run, row in enumerate(rows) for line in _lines(row, run, label(row) if len(rows) > 1 else "")]


def _lines(row: Row, run: int, name: str) -> list[Line]:
    """Return the answered requests of each load point, of all repeats together.

    Probes of the same number and rate are the same load in every repeat, other probes are loads of their own.
    """
    assert isinstance(row.plan, ServingPlan)
    found: dict[str, Line] = {}
    for repeat in row.folder.repeats():
        samples = _samples(repeat)
        for point in (*row.plan.points, *read_begun(repeat)):
            own = [sample for sample in samples if sample.point == point.number]
            if own:
                line = found.setdefault(str(point), Line(f"{name} {point}".strip(), run, point.number, []))
                line.samples.extend(own)
    return list(found.values())


def _samples(repeat: Path) -> list[RequestSample]:
    try:
        found = read_samples(repeat / "samples.0.jsonl", RequestSample)
    except (OSError, ValueError):
        return []
    return [sample for sample in found if not (sample.warmup or sample.problem)]


def _draw_panel(axes: Axes, kind: str, lines: Sequence[Line]) -> None:
    plain(axes, grid="y")
    several = len({line.run for line in lines}) > 1
    for line in lines:
        if not (times_s := sorted(latencies(line.samples)[kind])):
            continue
        shares = [place / len(times_s) for place in range(len(times_s) + 1)]
        axes.step(times_s[:1] + times_s, shares, where="post", linewidth=1.3, label=line.label, **line.look(several))
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
