"""The served runs that were profiled, with the speed of their profiled load beside the measured one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmexp.errors import RecordError
from llmexp.record.breakdown import RunBreakdown
from llmexp.record.digits import rounded
from llmexp.record.ranges import LAYER
from llmexp.record.result import RunStatus
from llmexp.report.breakdown.parts import Profiled, breakdown_of
from llmexp.report.breakdown.server import server_table
from llmexp.report.columns import ReportTable
from llmexp.report.row import Row
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.record.profiled_load import ProfiledLoad, read_profiled_load

# As many columns fit a terminal.
MOST_COLUMNS = 6
RATE = "output_tokens_per_s"


@dataclass(frozen=True)
class ProfiledRun:
    """A run with what its profile says; no breakdown where there is no trace that can be read."""

    row: Row
    name: str
    load: ProfiledLoad
    breakdown: RunBreakdown | None

    @property
    def profiled(self) -> list[Profiled]:
        """The run for tables and pictures of steps; none where there are no steps of prefill or decode."""
        found = self.breakdown
        return [Profiled(self.name, found)] if found and found.is_server else []

    @property
    def line(self) -> str:
        """What was profiled, and how much slower it was; or why it was not."""
        load = self.load
        if load.problem:
            return f"{self.name} was not profiled wholly: {load.problem}"
        if not self.profiled:
            why = self.breakdown.remark if self.breakdown else "it has no trace"
            return f"{self.name}: where its profiled time went is not known: {why or 'its trace marks no steps'}"
        seconds = " and ".join(f"{rounded(each)} s" for each in load.windows_s)
        return f"{self.name} was profiled at {load.load} for {seconds}{self._slower}{self._without_modules}"

    @property
    def _without_modules(self) -> str:
        """Say how modules are seen where the trace has none, as that of a model that is compiled."""
        ranks = self.breakdown.ranks if self.breakdown else []
        if any(LAYER in module.path for rank in ranks for module in rank.modules):
            return ""
        return "; its trace has no modules: where vLLM serves, +engine.options.compile=false shows them"

    @property
    def _slower(self) -> str:
        plan, result = self.row.plan, self.row.result
        assert isinstance(plan, ServingPlan)
        # The probes of a search come behind the planned loads.
        points = result.points[: len(plan.points)] if result else []
        measured = points[-1].metrics.get(RATE) if points else None
        if measured is None or self.load.output_tokens_per_s is None:
            return ""
        profiled, before = rounded(self.load.output_tokens_per_s), rounded(measured.mean)
        return f", where it gave {profiled} output tokens/s, with the ends of its profiler, and {before} else"


def profiled_runs(rows: Sequence[Row], label: Callable[[Row], str]) -> list[ProfiledRun]:
    """Return the runs whose servers were profiled; a record that is damaged must not cost the report."""
    return [
        ProfiledRun(row, label(row), load, breakdown_of(row))
        for row in rows
        if row.state == RunStatus.SUCCESS and (load := _load(row))
    ]


def profile_tables(runs: Sequence[ProfiledRun]) -> list[ReportTable]:
    """Return the table of the steps, with a line for each run."""
    shown = [each for run in runs for each in run.profiled][:MOST_COLUMNS]
    lines = [run.line for run in runs]
    if not shown:
        return []
    found = server_table(shown)
    return [ReportTable(found.title, found.columns, [*found.legend, *lines])]


def unprofiled_lines(runs: Sequence[ProfiledRun]) -> list[str]:
    """Return why there is no table, where no run has steps that it could show."""
    return [] if any(run.profiled for run in runs) else [run.line for run in runs]


def _load(row: Row) -> ProfiledLoad | None:
    try:
        found = [read_profiled_load(repeat) for repeat in row.folder.repeats()]
    except (RecordError, OSError):
        return None
    return next((load for load in reversed(found) if load), None)
