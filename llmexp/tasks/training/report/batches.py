"""Table IV's question, the largest batch: of runs that differ in batch.micro alone, the smallest and the largest that was measured."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

from llmexp.record.naming import NOT_MEASURED
from llmexp.record.result import RunStatus
from llmexp.report.table import Report
from llmexp.tasks.training.report.row import TrainingRow


def largest_batches(report: Report) -> Report:
    """Keep of each otherwise equal configuration the smallest batch.micro and the largest that was measured; the rest is counted in `left_out`.

    Runs of tasks that have no batch stay.
    """
    alike: dict[str, list[TrainingRow]] = defaultdict(list)
    for row in report.rows:
        if isinstance(row, TrainingRow):
            alike[_but_for_batch(row)].append(row)
    kept = {id(row) for rows in alike.values() for row in _ends(rows)}
    rows = tuple(row for row in report.rows if id(row) in kept or not isinstance(row, TrainingRow))
    return replace(report, rows=rows, left_out=len(report.rows) - len(rows))


def _ends(rows: list[TrainingRow]) -> list[TrainingRow]:
    ascending = sorted(rows, key=lambda row: row.batch.micro)
    measured = [row for row in ascending if row.state == RunStatus.SUCCESS]
    return [ascending[0], *measured[-1:]]


def _but_for_batch(row: TrainingRow) -> str:
    config = row.plan.config.model_dump(mode="json", exclude=dict.fromkeys(NOT_MEASURED, True) | {"batch": {"micro"}})
    return json.dumps(config | {"method": row.method}, sort_keys=True)
