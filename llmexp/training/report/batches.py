"""Table IV's question, the largest batch that fits, for runs that differ in batch.micro alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from llmexp.record.naming import NOT_MEASURED
from llmexp.record.result import RunStatus
from llmexp.training.report.row import TrainingRow


def largest_batches(rows: Sequence[TrainingRow]) -> tuple[TrainingRow, ...]:
    """Keep each configuration's runs with the smallest and the largest measured batch.micro, in their order."""
    alike: dict[str, list[TrainingRow]] = defaultdict(list)
    for row in rows:
        alike[but_for_batch(row)].append(row)
    kept = {id(row) for same in alike.values() for row in _ends(same)}
    return tuple(row for row in rows if id(row) in kept)


def _ends(rows: list[TrainingRow]) -> list[TrainingRow]:
    ascending = sorted(rows, key=lambda row: row.batch.micro)
    measured = [row for row in ascending if row.state == RunStatus.SUCCESS]
    return [ascending[0], *measured[-1:]]


def but_for_batch(row: TrainingRow) -> str:
    """Return all that is measured of a run but batch.micro, as a text that is equal where all of it is."""
    config = row.plan.config.model_dump(mode="json", exclude=dict.fromkeys(NOT_MEASURED, True) | {"batch": {"micro"}})
    return json.dumps(config | {"method": row.method}, sort_keys=True)
