"""Table IV's question, the largest batch: of runs that differ in batch.micro alone, the smallest and the largest that was measured."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

from llmexp.record.naming import NOT_MEASURED
from llmexp.record.result import RunStatus
from llmexp.report.row import Row
from llmexp.report.table import Report


def largest_batches(report: Report) -> Report:
    """Keep of each otherwise equal configuration the smallest batch.micro and the largest that was measured; the rest is counted in `left_out`."""
    alike: dict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        alike[_but_for_batch(row)].append(row)
    kept = {id(row) for rows in alike.values() for row in _ends(rows)}
    rows = tuple(row for row in report.rows if id(row) in kept)
    return replace(report, rows=rows, left_out=len(report.rows) - len(rows))


def _ends(rows: list[Row]) -> list[Row]:
    ascending = sorted(rows, key=lambda row: row.batch.micro)
    measured = [row for row in ascending if row.state == RunStatus.SUCCESS]
    return [ascending[0], *measured[-1:]]


def _but_for_batch(row: Row) -> str:
    config = {key: value for key, value in row.plan["config"].items() if key not in NOT_MEASURED}
    batch = {key: value for key, value in config.pop("batch").items() if key != "micro"}
    return json.dumps([config | {"method": row.method}, batch], sort_keys=True)
