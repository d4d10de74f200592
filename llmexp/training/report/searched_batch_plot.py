"""A plot of a search for the largest batch: speed and memory over the batch, with what did not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from llmexp.record.result import ResultPoint
from llmexp.report.picture import COLORS, new_figure, plain, save
from llmexp.training.largest_batch import BATCH
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.searched_batch import MEMORY, fitted, memory_of, over_batches, search_note, trials_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_search(row: TrainingRow, path: Path) -> None:
    """Draw the trials of a run that searched; nothing is drawn for a run that did not."""
    trials = trials_of(row)
    if not trials:
        return
    figure = new_figure(8.5, 4.2, f"{row.plan.name} on {row.hardware}\n{search_note(row)}")
    left, right = figure.subplots(1, 2)
    name = memory_of(trials)
    _panel(left, trials, "tokens_per_s", 1, "tokens/s")
    if name:
        _panel(right, trials, name, 1e9, f"{MEMORY[name]} (GB a rank)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    save(figure, path)


def _panel(axes: Axes, trials: Sequence[ResultPoint], metric: str, divisor: float, label: str) -> None:
    plain(axes, grid="y")
    fits = sorted(over_batches(trials, metric).items())
    known = [(batch, value / divisor) for batch, some in fits for value in some]
    means = [fmean(some) / divisor for _, some in fits]
    axes.plot([x for x, _ in fits], means, color=COLORS[0], linewidth=1.0)
    axes.plot([x for x, _ in known], [y for _, y in known], "o", color=COLORS[0], label="fitted")
    failed = sorted({trial.params[BATCH] for trial in trials if not fitted(trial)})
    for number, batch in enumerate(failed):
        label_once = "out of memory" if number == 0 else None
        axes.axvline(batch, color=COLORS[4], linewidth=1, linestyle=":", label=label_once)
    axes.set_xscale("log", base=2)
    ticks = sorted({x for x, _ in known} | set(failed))
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.1 * max((y for _, y in known), default=1.0))
    axes.set_xlabel("samples a rank and pass", fontsize=9)
    axes.set_ylabel(label, fontsize=9)
