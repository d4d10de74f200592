"""The report over run folders: sections, each the table of runs of one kind.

Renderers decide how they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmexp.errors import ConfigError, RecordError
from llmexp.record.folder import RunFolder
from llmexp.registry import get_task
from llmexp.report.row import Row, read_row
from llmexp.report.section import ReportSection
from llmexp.report.training_budget import TrainingBudget


@dataclass(frozen=True)
class Report:
    """Rows in sections, in the order in which their kinds come; `unreadable` says why other folders have no row."""

    sections: tuple[ReportSection, ...]
    unreadable: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row], unreadable: Sequence[str] = ()) -> Report:
        """Sort rows into sections."""
        kinds: dict[type[ReportSection], list[Row]] = {}
        for row in rows:
            kinds.setdefault(get_task(row.plan.config.task.name).section_type, []).append(row)
        sections = (kind(tuple(found), _others(kinds, kind)) for kind, found in kinds.items())
        return cls(tuple(sections), tuple(unreadable))

    @property
    def rows(self) -> list[Row]:
        """The rows of all sections."""
        return [row for section in self.sections for row in section.rows]

    def joined(self, others: Report) -> Report:
        """Return a report of these rows, followed by the others."""
        return Report.of([*self.rows, *others.rows], self.unreadable + others.unreadable)

    def largest_batches(self) -> Report:
        """Keep the largest batches of every section; see Section."""
        return replace(self, sections=tuple(section.largest_batches() for section in self.sections))

    def with_training_budget(self, budget: TrainingBudget) -> Report:
        """Return the report with what a training budget takes; raises ConfigError where no run can say it."""
        sections = tuple(replace(section, training_budget=budget) for section in self.sections)
        if not any(section.asked_tables for section in sections):
            raise ConfigError(
                f"--for {budget.kind}={budget.said}: applies to training only, and none of these runs trains"
            )
        return replace(self, sections=sections)

    def with_target_loss(self, loss: float) -> Report:
        """Return the report with what it takes to reach this loss; raises ConfigError where no run can say it."""
        sections = tuple(replace(section, target_loss=loss) for section in self.sections)
        if not any(section.asked_tables for section in sections):
            raise ConfigError(
                f"--loss {loss:g}: none of these runs has a budget: measure.tokens= or measure.duration_s="
            )
        return replace(self, sections=sections)


def _others(kinds: Mapping[type[ReportSection], Sequence[Row]], kind: type[ReportSection]) -> tuple[Row, ...]:
    return tuple(row for other, rows in kinds.items() if other is not kind for row in rows)


def build_report(folders: Sequence[RunFolder]) -> Report:
    """Read run folders into a report; a folder that cannot be read is named and hides no other."""
    from llmexp.record.shared_parts import SharedParts

    rows, unreadable, parts = [], [], SharedParts()
    for folder in folders:
        try:
            rows.append(read_row(folder, parts))
        except RecordError as error:
            unreadable.append(str(error))
    return Report.of(rows, unreadable)
