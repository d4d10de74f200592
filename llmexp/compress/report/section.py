"""The section of runs that compress: what each recipe leaves of the model's size, and of what it knew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from llmexp.analysis.metric import MetricSpec
from llmexp.compress.report.front import front, qualities, ratio_interval
from llmexp.compress.report.quality_plot import MB, QUALITY, draw_quality, quality_charts
from llmexp.compress.report.served import served_table
from llmexp.record.result import RunStatus
from llmexp.report.columns import Bars, Column, ReportTable
from llmexp.report.legend import legend_of_runs, legend_of_signs
from llmexp.report.notes import ending_note, mark
from llmexp.report.page.chart import Chart
from llmexp.report.row import OOM, Row
from llmexp.report.section import ReportSection
from llmexp.report.signs import doubt_sign

BEST = "*"
_SIZES = ("weight_bits", "layers_bytes", "file_bytes")
_TIME = "compress_time_s"
_RATIO = "ratio [95 %]"
_MEANINGS = (
    f"{BEST}: no other run of this model has as few bytes of layers and a lower perplexity",
    f"{_RATIO}: perplexity over the original's, with its 95 % interval by documents",
)


@dataclass(frozen=True)
class CompressSection(ReportSection):
    """Runs of task=compress, which have a quality and sizes instead of a rate."""

    @property
    def title(self) -> str:
        """What all runs share."""
        shared = self.shared
        model, hardware, documents = (shared.get(name) for name in ("model", "hardware", "documents"))
        named = [f"{model or 'models'} made smaller{f' on {hardware}' if hardware else ''}"]
        return ", ".join([*named, *([f"held-out documents: {documents}"] if documents else [])])

    @property
    def columns(self) -> list[Column]:
        """The recipe, sizes, perplexity, its ratio, and what else is measured."""
        shown = {name: self.metric_column(spec) for name, spec in self.metrics.items() if spec.column}
        shown |= {_TIME: self._seconds(self.metrics[_TIME])} if _TIME in shown else {}
        rest = [column for name, column in shown.items() if name not in (*_SIZES, "perplexity")]
        found = [
            *self.identity_columns(),
            *(shown[name] for name in _SIZES),
            self.rate_column(),
            self.column(_RATIO, _ratio),
            *rest,
        ]
        return [column for column in found if not column.dispensable or any(column.cells)]

    def rate_column(self) -> Column:
        """Return the perplexity, or how the run ended without one."""
        return self.column("perplexity", self._perplexity)

    def _perplexity(self, row: Row) -> str:
        metric, why = row.metric("perplexity"), mark(ending_note(row), self.numbers)
        if not metric or row.state != RunStatus.SUCCESS:
            return "-" if row.state == OOM else row.state + why
        return f"{metric.mean:,.4g}{f' {BEST}' if row.id in self._best else ''}{why}"

    def _seconds(self, spec: MetricSpec) -> Column:
        """Return the time of compression; what disturbs a machine changes this alone, so the sign stands here."""
        column = self.metric_column(spec)
        signs = [f" {doubt_sign(row)}{mark(row.doubt, self.numbers)}" if row.doubt else "" for row in self.rows]
        cells = tuple(cell and f"{cell}{sign}" for cell, sign in zip(column.cells, signs, strict=True))
        return replace(column, cells=cells)

    @cached_property
    def _best(self) -> set[str]:
        """The ids of the runs that no other beats in bytes and in perplexity, where there are several."""
        groups = [group for group in qualities(self.rows).values() if len(group) > 1]
        return {one.row.id for group in groups for one in front(group)}

    @property
    def legend(self) -> list[str]:
        """The meaning of the columns and signs."""
        return [*self._meanings, *legend_of_signs(self.rows), *legend_of_runs(self.rows, self.shared)]

    @property
    def explained(self) -> list[str]:
        """The lines of the legend that a terminal shows on demand."""
        return [line for line in super().explained if line not in self._meanings]

    @property
    def _meanings(self) -> list[str]:
        best, ratio = _MEANINGS
        marked = [*([best] if self._best else []), *([ratio] if any(map(_ratio, self.rows)) else [])]
        # There is no rate, whose meaning comes first elsewhere.
        return [*marked, *filter(None, self._headings)]

    @property
    def tables(self) -> Sequence[ReportTable]:
        """What was served of these models, beside their quality, and what references have."""
        served = served_table(self.rows, self.others)
        return [*([served] if served else []), *super().tables]

    @property
    def panels(self) -> list[Bars]:
        """What is lost of the perplexity, and the bytes of the layers."""
        ratios = [metric.mean if (metric := row.metric("perplexity_ratio")) else None for row in self.rows]
        sizes = [metric.mean / MB if (metric := row.metric("layers_bytes")) else None for row in self.rows]
        lost = [None if ratio is None else _percent(ratio) for ratio in ratios]
        ends = [
            (_percent(found[0]), _percent(found[1])) if (found := ratio_interval(row)) else None for row in self.rows
        ]
        none, signs = [None] * len(self.rows), [""] * len(self.rows)
        words = ["" if row.state == RunStatus.SUCCESS else row.state for row in self.rows]
        return [
            Bars("perplexity above the original's, %", lost, ends, none, words, signs),
            Bars("layers, MB", sizes, none, none, words, signs),
        ]

    @property
    def subtitle(self) -> str:
        """The meaning of the marks in the picture."""
        return "bars and numbers: measured; whiskers: 95 % intervals by documents"

    @property
    def charts(self) -> Sequence[Chart]:
        """Quality over bytes."""
        return list(quality_charts(self))

    @property
    def drawn_as_charts(self) -> Sequence[str]:
        """The pictures of quality over bytes."""
        return [QUALITY]

    def draw_more(self, path: Path) -> list[Path]:
        """Draw quality over bytes."""
        return [*draw_quality(self, path), *super().draw_more(path)]


def _ratio(row: Row) -> str:
    metric, ends = row.metric("perplexity_ratio"), ratio_interval(row)
    if not metric:
        return ""
    return f"{_exact(metric.mean)}" + (f" [{_exact(ends[0])}, {_exact(ends[1])}]" if ends else "")


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _exact(ratio: float) -> str:
    """Write a ratio with four places, as good recipes are a few parts of ten thousand apart."""
    return f"{ratio:.4f}" if ratio < 10 else f"{ratio:.4g}"
