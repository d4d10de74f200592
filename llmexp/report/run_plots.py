"""One run over its steps: loss and step time, a line a repeat, a band from the lowest to the highest rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from llmexp.record.folder import RunFolder
from llmexp.record.result import StepSample, read_samples
from llmexp.report.picture import COLOURS, INK, new_figure, plain, save
from llmexp.report.row import Row, read_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Steps = list[tuple[StepSample, ...]]
Value = Callable[[StepSample], float]


@dataclass(frozen=True)
class Curve:
    """One picture: its file, the value of a rank's step, and which rank's value the line follows."""

    file: str
    label: str
    value: Value
    line: Callable[[Sequence[float]], float]
    line_label: str
    from_zero: bool = False


CURVES = (
    Curve("loss.png", "loss", lambda sample: sample.loss, fmean, "mean over ranks"),
    Curve("step_time.png", "step time (s)", lambda sample: sample.t_end_s - sample.t_start_s, max, "slowest rank", from_zero=True),
)


def draw_run(folder: RunFolder) -> None:
    """Write loss.png and step_time.png into the run's figures, as far as its samples go; nothing where there are none. Raises RecordError."""
    repeats = [(path.name.replace(".", " "), _steps(path)) for path in folder.repeats()]
    begun = [(name, steps) for name, steps in repeats if steps]
    if not begun:
        return
    row = read_row(folder)
    for curve in CURVES:
        _draw_curve(curve, begun, row, folder.figures / curve.file)


def _draw_curve(curve: Curve, repeats: Sequence[tuple[str, Steps]], row: Row, path: Path) -> None:
    figure = new_figure(7.5, 3.8, f"{row.method}: {row.model} on {row.hardware}, {row.world_size} ranks, {row.work['precision']}")
    axes = figure.subplots()
    plain(axes, grid="y")
    for number, (name, steps) in enumerate(repeats):
        colour = COLOURS[number % len(COLOURS)]
        values = [[curve.value(sample) for sample in step] for step in steps]
        numbers = [step[0].step for step in steps]
        axes.plot(
            numbers, [curve.line(ranks) for ranks in values], ".-", color=colour, linewidth=1.3, markersize=3, label=f"{name}, {curve.line_label}"
        )
        axes.fill_between(numbers, [min(ranks) for ranks in values], [max(ranks) for ranks in values], color=colour, alpha=0.2, linewidth=0)
    if curve.from_zero:
        _show_from_zero(axes, [[max(map(curve.value, step)) for step in steps] for _, steps in repeats])
    warmup = [step[0].step for step in repeats[0][1] if step[0].warmup]
    if warmup:
        axes.axvspan(warmup[0] - 0.5, warmup[-1] + 0.5, color="#eeeeee", zorder=0, label="warm-up")
    axes.set_xlabel("step", fontsize=9)
    axes.set_ylabel(curve.label + (", band: range over ranks" if row.world_size > 1 else ""), fontsize=9)
    axes.locator_params(axis="x", integer=True)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, path)


def _show_from_zero(axes: Axes, repeats: Sequence[Sequence[float]]) -> None:
    """Start at zero, and cut off a first step (start-up, not work) that would flatten all others, saying how long it took."""
    first, rest = max(steps[0] for steps in repeats), max((value for steps in repeats for value in steps[1:]), default=0.0)
    cut = bool(rest) and first > 2 * rest
    axes.set_ylim(0, 1.25 * (rest if cut else max(first, rest)))
    if cut:
        axes.set_title(f"cut off: the first step, {first:.3g} s", loc="left", fontsize=8, color=INK)


def _steps(repeat: Path) -> Steps:
    """The steps that all ranks have taken so far, each with its samples by rank."""
    return list(zip(*(read_samples(path) for path in sorted(repeat.glob("samples.*.jsonl"))), strict=False))
