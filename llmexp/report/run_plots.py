"""Plots of one run over its steps: loss and step time, a line a repeat, with a band from lowest to highest rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from llmexp.analysis.window import duration_s
from llmexp.record.digits import rounded
from llmexp.record.folder import RunFolder
from llmexp.record.plan import RunPlan
from llmexp.record.samples import Sample, read_samples
from llmexp.record.timeline import read_timeline
from llmexp.registry import get_task
from llmexp.report.breakdown.timeline_plot import draw_timeline
from llmexp.report.picture import COLORS, INK, new_figure, plain, save
from llmexp.report.row import Row, read_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

StepCurves = list[tuple[Sample, ...]]
Value = Callable[[Sample], float]


@dataclass(frozen=True)
class Curve:
    """A picture: its file, the value of a rank's step, and how the values of all ranks give the line."""

    file: str
    label: str
    value: Value
    line: Callable[[Sequence[float]], float]
    line_label: str
    from_zero: bool = False


def curves_of(plan: RunPlan) -> list[Curve]:
    """Return curves of the values that the task names, and of the time of each sample."""
    task, name = get_task(plan.config.task.name), plan.sample_name
    own = [Curve(f"{value}.png", value, partial(_value, value), fmean, "mean over ranks") for value in task.curves]
    # Without a rate samples are of different kinds, whose times no line connects.
    time = [Curve(f"{name}_time.png", f"{name} time (s)", duration_s, max, "slowest rank", from_zero=True)]
    return own + time * bool(plan.rate)


def _value(name: str, sample: Sample) -> float:
    return sample.values[name]


def draw_run(folder: RunFolder) -> None:
    """Write a picture of each curve into the run's figures, as far as its samples go.

    Nothing is written without samples. Raises RecordError.
    """
    if not any(folder.path.glob("repeat.*/samples.*.jsonl")):
        return
    row = read_row(folder)
    kind = get_task(row.plan.config.task.name).sample_type
    repeats = [(path.name.replace(".", " "), steps_of(path, kind)) for path in folder.repeats()]
    begun = [(name, steps) for name, steps in repeats if steps]
    for curve in curves_of(row.plan) if begun else ():
        _draw_curve(curve, begun, row, folder.figures / curve.file)
    get_task(row.plan.config.task.name).draw(row, folder.figures)
    if step := read_timeline(folder):
        draw_timeline(step, row.plan.name, folder.figures / "timeline.png")


def _draw_curve(curve: Curve, repeats: Sequence[tuple[str, StepCurves]], row: Row, path: Path) -> None:
    figure = new_figure(7.5, 3.8, f"{row.plan.name} on {row.hardware}, {row.processes} rank{'s' * (row.processes > 1)}")
    axes = figure.subplots()
    plain(axes, grid="y")
    for number, (name, steps) in enumerate(repeats):
        color = COLORS[number % len(COLORS)]
        values = [[curve.value(sample) for sample in step] for step in steps]
        numbers = [step[0].index for step in steps]
        axes.plot(
            numbers,
            [curve.line(ranks) for ranks in values],
            ".-",
            color=color,
            linewidth=1.3,
            markersize=3,
            label=f"{name}, {curve.line_label}",
        )
        axes.fill_between(
            numbers,
            [min(ranks) for ranks in values],
            [max(ranks) for ranks in values],
            color=color,
            alpha=0.2,
            linewidth=0,
        )
    if curve.from_zero:
        _show_from_zero(axes, [[max(map(curve.value, step)) for step in steps] for _, steps in repeats])
    warmup = [step[0].index for step in repeats[0][1] if step[0].warmup]
    if warmup:
        axes.axvspan(warmup[0] - 0.5, warmup[-1] + 0.5, color="#eeeeee", zorder=0, label="warm-up")
    axes.set_xlabel(row.plan.sample_name, fontsize=9)
    axes.set_ylabel(curve.label + (", band: range over ranks" if row.processes > 1 else ""), fontsize=9)
    axes.locator_params(axis="x", integer=True)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, path)


def _show_from_zero(axes: Axes, repeats: Sequence[Sequence[float]]) -> None:
    """Start the axis at zero, and cut off a first step that would flatten all others.

    Such a step is start-up and not work; the title says how long it took.
    """
    first, rest = (
        max(steps[0] for steps in repeats),
        max((value for steps in repeats for value in steps[1:]), default=0.0),
    )
    cut = bool(rest) and first > 2 * rest
    axes.set_ylim(0, 1.25 * (rest if cut else max(first, rest)))
    if cut:
        axes.set_title(f"cut off: the first step, {rounded(first)} s", loc="left", fontsize=8, color=INK)


def steps_of(repeat: Path, kind: type[Sample]) -> StepCurves:
    """Return the steps that all ranks have taken so far, each with its samples by rank."""
    return list(zip(*(read_samples(path, kind) for path in sorted(repeat.glob("samples.*.jsonl"))), strict=False))
