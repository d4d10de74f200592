"""The report over run folders: sections, each the table of runs of one kind; how they are shown is the renderers' business."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.report.row import Row, read_row
from llmexp.report.section import Section
from llmexp.tasks import get_task


@dataclass(frozen=True)
class Report:
    """Rows in sections, in the order in which their kinds come; `unreadable` says of the other folders why they have none."""

    sections: tuple[Section, ...]
    unreadable: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row], unreadable: Sequence[str] = ()) -> Report:
        """Sort rows into sections."""
        kinds: dict[type[Section], list[Row]] = {}
        for row in rows:
            kinds.setdefault(get_task(row.plan.config.task.name).section_type, []).append(row)
        return cls(tuple(kind(tuple(found)) for kind, found in kinds.items()), tuple(unreadable))

    @property
    def rows(self) -> list[Row]:
        """Those of all sections."""
        return [row for section in self.sections for row in section.rows]

    def joined(self, others: Report) -> Report:
        """These rows and then the others."""
        return Report.of([*self.rows, *others.rows], self.unreadable + others.unreadable)

    def largest_batches(self) -> Report:
        """See Section."""
        return replace(self, sections=tuple(section.largest_batches() for section in self.sections))


def build_report(folders: Sequence[RunFolder]) -> Report:
    """Read run folders into a report; one that cannot be read is said and hides no other."""
    rows, unreadable = [], []
    for folder in folders:
        try:
            rows.append(read_row(folder))
        except RecordError as error:
            unreadable.append(str(error))
    return Report.of(rows, unreadable)
