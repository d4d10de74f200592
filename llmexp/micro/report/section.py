"""The section of microbenchmarks: the runs, their limits beside each other, every point, and curves over sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.analysis.inference import mean_interval
from llmexp.analysis.metric import MetricSpec
from llmexp.micro.families.base import Bar
from llmexp.micro.limits import HighestRate, cache_bytes
from llmexp.micro.plan.micro_plan import TIMES_CACHE
from llmexp.micro.report.curves import draw_curves
from llmexp.micro.report.page_charts import micro_charts
from llmexp.micro.report.tables import point_tables
from llmexp.micro.report.units import in_bytes, prefix_of
from llmexp.record.digits import rounded
from llmexp.record.result import RunResult, RunStatus
from llmexp.registry import families
from llmexp.report.columns import Bars, Column, ReportTable
from llmexp.report.legend import how_measured, legend_of_runs, legend_of_signs
from llmexp.report.notes import ending_note, mark
from llmexp.report.page.chart import Chart
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.report.signs import doubt_sign

_POINT_TIME = "a point's time is the median of its samples on the slowest rank; all ranks measure at the same time"
IN_CACHE, CACHE_UNKNOWN = "in the cache", "cache unknown"


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
    def tables(self) -> Sequence[ReportTable]:
        """The limits of all runs, then the points of each."""
        found = limits_table(self.rows, self.metrics, self.label)
        several = len(self.rows) > 1
        points = [
            ReportTable(f"{table.title}: {self.label(row)}" if several else table.title, table.columns, table.legend)
            for row in self.rows
            for table in point_tables(row, self.beside)
        ]
        return [*([found] if found else []), *points, *super().tables]

    @property
    def legend(self) -> list[str]:
        """The meaning of the columns."""
        return [
            _POINT_TIME,
            *legend_of_signs(self.rows),
            *self.beside.legend("values"),
            *legend_of_runs(self.rows, self.shared),
        ]

    @property
    def explained(self) -> list[str]:
        """The lines of the legend that a terminal shows on demand."""
        return [_POINT_TIME, *how_measured(self.rows)]

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
            [mean_interval(metric, 1 / bar.divisor) if metric else None for metric in metrics],
            none,
            ["" if row.state == RunStatus.SUCCESS else row.state for row in self.rows],
            [f" {sign}" if (sign := doubt_sign(row)) else "" for row in self.rows],
        )

    @property
    def charts(self) -> Sequence[Chart]:
        """The curves over sizes."""
        return list(micro_charts(self))

    @property
    def drawn_as_charts(self) -> Sequence[str]:
        """The pictures of the curves."""
        return [family.name for family in families()]

    def draw_more(self, path: Path) -> list[Path]:
        """Draw the curves over sizes."""
        return [*draw_curves(self, path), *super().draw_more(path)]


def limits_table(
    rows: Sequence[Row], specs: Mapping[str, MetricSpec], label: Callable[[Row], str]
) -> ReportTable | None:
    """Return the limits that any of the runs has points of, a column for each run; None where there is none."""
    measured = [(row, row.result) for row in rows if row.result and row.state == RunStatus.SUCCESS]
    found = [(row, result, [_cell(result, spec) for spec in specs.values()]) for row, result in measured]
    found = [each for each in found if any(each[2])]
    shown = [number for number in range(len(specs)) if any(cells[number] for _, _, cells in found)]
    if not shown:
        return None
    helps = [spec.help for spec in specs.values()]
    columns = [
        Column("limit", tuple(helps[number] for number in shown), left=True),
        *(Column(label(row), tuple(cells[number] for number in shown)) for row, _, cells in found),
    ]
    legend = dict.fromkeys(line for _, result, cells in found for line in _legend(result, specs, cells))
    return ReportTable("what this machine can do at most, per rank while all ranks work", columns, list(legend))


def _cell(result: RunResult, spec: MetricSpec) -> str:
    """Return the limit and the bytes of its point, or why points set none."""
    limit, metric = _limit(spec), result.metrics.get(spec.name)
    if metric is None:
        points = limit.among(result.points)
        known = any(cache_bytes(point, result.what_ran) for point in points)
        return (IN_CACHE if known else CACHE_UNKNOWN) if points else ""
    prefix, divisor = prefix_of(metric.mean)
    point = limit.set_by(result.points, result.what_ran)
    size = point.params.get("bytes") if point else None
    at = f" at {in_bytes(size)}" if size else ""
    return f"{rounded(metric.mean / divisor)} {prefix}{spec.unit.replace('bytes', 'B')}{at}"


def _legend(result: RunResult, specs: Mapping[str, MetricSpec], cells: Sequence[str]) -> Iterator[str]:
    """Say why there is no limit, and what would give one."""
    if CACHE_UNKNOWN in cells:
        yield f"{CACHE_UNKNOWN}: the system does not report its size, so no rate is known to be the memory's"
    for spec, cell in zip(specs.values(), cells, strict=True):
        if cell == IN_CACHE:
            size = cache_bytes(_limit(spec).among(result.points)[0], result.what_ran) or 0
            yield (
                f"{IN_CACHE}: no point's data are {TIMES_CACHE} times as large as the cache, {in_bytes(size)}, "
                f"so no rate is the memory's; larger {_larger()} are"
            )


def _larger() -> str:
    *others, last = [family.larger for family in families() if family.larger]
    return f"{', '.join(others)} or {last}"


def _limit(spec: MetricSpec) -> HighestRate:
    assert isinstance(spec.function, HighestRate)
    return spec.function
