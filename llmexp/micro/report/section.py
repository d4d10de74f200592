"""The section of microbenchmarks: the runs, their limits beside each other, every point, and curves over sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.micro.families.base import Bar
from llmexp.micro.report.curves import draw_curves
from llmexp.micro.report.limits_table import limits_table
from llmexp.micro.report.tables import point_tables
from llmexp.record.result import RunStatus
from llmexp.registry import families
from llmexp.report.columns import Bars, Column, Detail
from llmexp.report.legend import legend_of_runs, legend_of_signs
from llmexp.report.notes import ending_note, mark
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.report.signs import doubt_sign


@dataclass(frozen=True)
class MicroSection(ReportSection):
    """Runs of task=micro, which have points instead of a rate."""

    @property
    def title(self) -> str:
        """The work that all runs share, without the engine, which all have."""
        hardware = self.shared.get("hardware")
        named = [f"microbenchmarks{f' on {hardware}' if hardware else ''}"]
        ranks = self.shared.get("ranks")
        named += [f"{ranks} rank{'s' * (ranks != '1')}"] if ranks else []
        named += [f"model {model}"] if (model := self.shared.get("model")) else []
        return ", ".join(named)

    def rate_column(self) -> Column:
        """Return how many points were measured, or how the run ended without any."""
        return self.column("points measured", self._measured)

    def _measured(self, row: Row) -> str:
        if not row.result or row.state != RunStatus.SUCCESS:
            return row.state + mark(ending_note(row), self.numbers)
        known = sum(not point.problem for point in row.result.points)
        sign = f" {doubt_sign(row)}{mark(row.doubt, self.numbers)}" if row.doubt else ""
        return f"{known} of {len(row.result.points)}{sign}"

    @property
    def details(self) -> Sequence[Detail]:
        """The limits of all runs, then the points of each."""
        found = limits_table(self.rows, self.metrics, self.label)
        several = len(self.rows) > 1
        points = [
            Detail(f"{detail.title}: {self.label(row)}" if several else detail.title, detail.columns, detail.legend)
            for row in self.rows
            for detail in point_tables(row, self.beside)
        ]
        return [*([found] if found else []), *points, *super().details]

    @property
    def legend(self) -> list[str]:
        """The meaning of the columns."""
        return [
            "a point's time is the median of its samples on the slowest rank; all ranks measure at the same time",
            *legend_of_signs(self.rows),
            *self.beside.legend("values"),
            *legend_of_runs(self.rows, self.shared),
        ]

    @property
    def panels(self) -> list[Bars]:
        """A panel for each of the main limits that any run measured."""
        found = [self._panel(family.bar) for family in families() if family.bar]
        return [bars for bars in found if any(value is not None for value in bars.ours)] or found[:1]

    def _panel(self, bar: Bar) -> Bars:
        metrics = [next(filter(None, (row.metric(name) for name in bar.limits)), None) for row in self.rows]
        none = [None] * len(self.rows)
        return Bars(
            bar.label,
            [metric.mean / bar.divisor if metric else None for metric in metrics],
            [(metric.std_between_repeats or 0.0) / bar.divisor if metric else 0.0 for metric in metrics],
            none,
            ["" if row.state == RunStatus.SUCCESS else row.state for row in self.rows],
            [""] * len(self.rows),
        )

    def draw_more(self, path: Path) -> list[Path]:
        """Draw the curves over sizes."""
        return [*draw_curves(self, path), *super().draw_more(path)]
