"""The table and the picture of predictions beside measured runs that docs/ shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.prediction.blind import blind_sources, words_of_blind
from benchmarks.prediction.contradictions import BEYOND, least_quantile
from benchmarks.prediction.judge import CARD_LEFT_OUT, PLATFORMS, PUBLISHED, Judge, Judged
from benchmarks.prediction.suite import without_contradictions
from llmexp.record.digits import rounded

_WORST = 15
_COLORS = {
    "a800": "#0072b2",
    "rtx4090": "#d55e00",
    "rtx3090_nvlink": "#009e73",
    "rtx3090": "#cc79a7",
    "h100": "#000000",
    "h200": "#56b4e9",
    "a100": "#e69f00",
    "a100_40gb": "#f0e442",
}
_OTHERS, _OTHER_COLOR = "other cards", "#999999"
_HEAD = """\
# Predictions: the evidence

[Prediction](../prediction.md) says what is predicted and how. This page has how far off it was of runs that the fit did
not see. One command fits the constants anew, and writes this page, its picture and the constants:

    python -m benchmarks.prediction

`python -m benchmarks predict` judges them by limits, and ends with exit code 1 where one is broken by more than chance.
"""
_NOTES = {
    "one method left out": "each method predicted by the runs of all others",
    "table IV by tables III and IX and two of its steps": "batches up to 64 predicted by runs of batch 1",
    "a platform left out, three of its runs kept": "its data sheet, the other platforms' runs, and three of its own",
    "a platform left out, none kept": "its data sheet and the other platforms' runs",
    CARD_LEFT_OUT: "the paper's runs, which have neither `C`, nor Megatron, nor a fused AdamW",
    "this project's H100, never fitted": "one card, three years newer than the paper's programs",
    PUBLISHED: "data sheets, measured kernels, the paper's runs and this project's H200",
}


def tables(judge: Judge, judged: Sequence[Judged], intervals: Mapping[str, Sequence[float]]) -> str:
    """Return the page of evidence in Markdown."""
    odd = len(judge.odd)
    counts = (
        f"The runs are {len(judge.printed)} cells of the paper's tables III, IV and IX, {len(judge.card)} runs of this "
        f"project's H200,\n{len(judge.other_cards)} of its H100, and {len(judge.others)} that others published. {odd} "
        "cells of the paper are left out, because their speed contradicts\nothers."
    )
    parts = [
        _errors(judged),
        _tail(judge, judged[0]),
        _intervals(intervals),
        _by_platform(judged),
        _by_source(judged),
        _worst(judged[0]),
    ]
    return "\n".join([_HEAD, counts, *(line for part in parts for line in ["", *part])]) + "\n"


def picture(judged: Sequence[Judged], path: Path) -> None:
    """Draw predicted over measured step times, a panel for each way to leave runs out."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(15, 8), layout="constrained")
    for place, one in enumerate(judged, 1):
        axes = figure.add_subplot(2, 4, place)
        measured = np.array([cell.step_s for cell in one.cells])
        names = np.array([cell.hardware if cell.hardware in _COLORS else _OTHERS for cell in one.cells])
        for name in sorted(set(names), key=[_OTHERS, *_COLORS].index):
            of = names == name
            predicted = measured[of] * np.exp(one.errors[of])
            axes.scatter(measured[of], predicted, s=14, alpha=0.7, color=_COLORS.get(name, _OTHER_COLOR), label=name)
        ends = np.array([measured.min() / 1.5, measured.max() * 1.5])
        axes.plot(ends, ends, color="0.4", linewidth=1)
        axes.fill_between(ends, ends / 1.25, ends * 1.25, color="0.85", zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="measured step, s", ylabel="predicted step, s")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(NullFormatter())
        axes.set_title(one.name.replace(", ", ",\n", 1).replace(" and two", "\nand two"), fontsize=10)
        # The last panel has the most cards, and room to its right.
        beside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0)} if _OTHERS in names else {}
        axes.legend(fontsize=8, frameon=False, **beside)
    figure.savefig(path, dpi=80, metadata={"Software": None})


def _errors(judged: Sequence[Judged]) -> Iterator[str]:
    yield "| left out | what predicts | runs | median error | 95th percentile |"
    yield "|---|---|---:|---:|---:|"
    for one in judged:
        yield f"| {one.name} | {_NOTES[one.name]} | {len(one.cells)} | {_percent(one, 0.5)} | {_percent(one, 0.95)} |"


def _tail(judge: Judge, judged: Judged) -> Iterator[str]:
    """Yield whether the worst errors come from cells that contradict each other."""
    fitted, consistent = judge.fitted_to_all(), without_contradictions(judged)
    least, wrong = f"{100 * least_quantile(judged.cells, 0.95):.1f}", len(judged.cells) - len(consistent.cells)
    beyond = f"{100 * BEYOND:.0f} %"
    yield "Cells of the paper contradict each other: `F` makes some steps longer, `R` or a larger batch some shorter."
    yield f"{wrong} cells contradict others so much that one is off by more than {beyond} in every model"
    yield "whose terms add up or overlap. This alone makes the 95th percentile of such a model"
    yield f"{least} % or more. The rest is what the formulas do not know, or settings that the paper does not print."
    yield "One such setting is assumed, with these cells in view: 4-bit layers of `QL` without `F` and ZeRO compute in"
    yield "fp32, transformers' default, and multiply in TF32. Fitted to all cells, the formulas err by less:"
    yield ""
    yield "| errors | runs | median error | 95th percentile |"
    yield "|---|---:|---:|---:|"
    named = {judged.name: judged, f"{judged.name}, as a share of tokens/s": judged.of_speed}
    named |= {f"{judged.name}, without those {wrong} cells": consistent, fitted.name: fitted}
    for name, one in named.items():
        yield f"| {name} | {len(one.cells)} | {_percent(one, 0.5)} | {_percent(one, 0.95)} |"


def _intervals(intervals: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield what a plan's interval is made of."""
    yield "90 % intervals of tokens/s, as shares of the prediction, by the runs whose errors they come from; by the"
    yield "sources, where the intervals of others hold too few of a source:"
    yield ""
    yield "| plans | runs or sources | from | to |"
    yield "|---|---:|---:|---:|"
    for group, (low, high, runs) in intervals.items():
        yield f"| {group} | {runs} | {low:.2f} | {high:.2f} |"


def _by_platform(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield the errors by platform and task, median and 95th percentile."""
    yield "By platform and task, median and 95th percentile:"
    yield ""
    yield "| left out | platform | task | runs | median | 95th percentile |"
    yield "|---|---|---|---:|---:|---:|"
    for one in judged:
        for platform in PLATFORMS:
            for task in ("pretrain", "finetune"):
                part = one.part(task, [cell.hardware in platform and cell.task == task for cell in one.cells])
                if part.cells:
                    ends = f"{_percent(part, 0.5)} | {_percent(part, 0.95)}"
                    yield f"| {one.name} | {', '.join(platform)} | {task} | {len(part.cells)} | {ends} |"


def _by_source(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield the errors of what others published, by source."""
    published = next((one for one in judged if one.name == PUBLISHED), None)
    if published is None:
        return
    sources = published.by_source
    middle = float(np.median([np.median(one.off) for one in sources.values()]))
    blind = blind_sources()
    yield from words_of_blind()
    yield ""
    yield "Where a run surely did not fit as its source tells it, the least that makes it fit is assumed of what the"
    yield "source does not speak of: states that are shared out, sequences that are cut, recomputation. It still counts"
    yield "among the runs that ran although the plan says no."
    yield ""
    yield f"What others published, by source; the median over sources is {100 * middle:.1f} %:"
    yield ""
    yield "| source | hardware | runs | median error | predicted over measured step, median | blind |"
    yield "|---|---|---:|---:|---:|---:|"
    for name, one in sources.items():
        cards = ", ".join(sorted({cell.hardware for cell in one.cells}))
        bias = rounded(float(np.exp(np.median(one.errors))))
        found = blind[name].median_error_percent if name in blind else None
        then = "" if found is None else f"{found:.1f} %"
        yield f"| {name} | {cards} | {len(one.cells)} | {_percent(one, 0.5)} | {bias} | {then} |"


def _worst(one: Judged) -> Iterator[str]:
    yield f"The {_WORST} worst with {one.name}:"
    yield ""
    yield "| cell | measured step, s | predicted step, s |"
    yield "|---|---:|---:|"
    for place in np.argsort(-np.abs(one.errors))[:_WORST]:
        cell = one.cells[place]
        yield f"| {cell} | {rounded(cell.step_s)} | {rounded(cell.step_s * float(np.exp(one.errors[place])))} |"


def _percent(one: Judged, share: float) -> str:
    return f"{100 * float(np.quantile(one.off, share)):.1f} %"
