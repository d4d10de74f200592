"""The report over run folders: sections, each the table of runs of one kind; how they are shown is the renderers' business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llmexp.errors import RecordError
from llmexp.record.folder import RunFolder
from llmexp.report.row import Row, read_row
from llmexp.report.section import Section
from llmexp.tasks import get_task


@dataclass(frozen=True)
class Report:
    """Rows in the order of their folders; `unreadable` says of the other folders why they have none, `left_out` counts rows that are not shown."""

    rows: tuple[Row, ...]
    unreadable: tuple[str, ...] = ()
    left_out: int = 0

    @cached_property
    def sections(self) -> list[Section]:
        """One for each kind of runs, in the order in which they come."""
        kinds: dict[type[Section], list[Row]] = {}
        for row in self.rows:
            kinds.setdefault(get_task(row.plan.config.task.name).section_type, []).append(row)
        return [kind(tuple(rows), self.left_out) for kind, rows in kinds.items()]

    @property
    def title(self) -> str:
        """What all rows of each section have in common."""
        return "; ".join(section.title for section in self.sections)

    def joined(self, others: Report) -> Report:
        """These rows and then the others."""
        return Report(self.rows + others.rows, self.unreadable + others.unreadable, self.left_out + others.left_out)


def build_report(folders: Sequence[RunFolder]) -> Report:
    """Read run folders into a report; one that cannot be read is said and hides no other."""
    rows, unreadable = [], []
    for folder in folders:
        try:
            rows.append(read_row(folder))
        except RecordError as error:
            unreadable.append(str(error))
    return Report(tuple(rows), tuple(unreadable))
