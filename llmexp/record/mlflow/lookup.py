"""The search for the runs in a SQLite store of MLflow, by one query to its database.

MLflow's own search reads every parameter and metric too, and importing MLflow takes longer than all other work where
nothing has changed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from llmexp.record.mlflow.tags import ATTEMPT_TAG, DIGEST_TAG, KIND_TAG, RUN_TAG, SWEEP_TAG

_QUERY = """
SELECT sweep.value, run.value, runs.run_uuid, digest.value, attempt.value FROM runs
JOIN experiments ON experiments.experiment_id = runs.experiment_id AND experiments.name = ?
JOIN tags AS kind ON kind.run_uuid = runs.run_uuid AND kind.key = ? AND kind.value = ?
JOIN tags AS sweep ON sweep.run_uuid = runs.run_uuid AND sweep.key = ?
LEFT JOIN tags AS run ON run.run_uuid = runs.run_uuid AND run.key = ?
LEFT JOIN tags AS digest ON digest.run_uuid = runs.run_uuid AND digest.key = ?
LEFT JOIN tags AS attempt ON attempt.run_uuid = runs.run_uuid AND attempt.key = ?
WHERE runs.lifecycle_stage = 'active' ORDER BY runs.start_time
"""


@dataclass(frozen=True)
class Recorded:
    """A run that MLflow has; its digest is missing where writing the run was interrupted, or has only begun.

    `attempt` is of a run that was begun while it went on.
    """

    run_id: str
    digest: str | None
    attempt: str | None = None


Known = dict[tuple[str, str | None], list[Recorded]]


def known_runs(database: Path, experiment: str) -> Known | None:
    """Return all runs of the named experiment by sweep and id, oldest first.

    Return None where the database is not as expected, as another version of MLflow may make it.
    """
    return _known(database, experiment, "run")


def reported(database: Path, experiment: str, sweep: str) -> list[str | None]:
    """Return the digests of the reports of a sweep's parent runs; empty also where the database is not as expected."""
    known = _known(database, experiment, "sweep") or {}
    return [parent.digest for parent in known.get((sweep, None), [])]


def _known(database: Path, experiment: str, kind: str) -> Known | None:
    known: Known = {}
    tags = (KIND_TAG, kind, SWEEP_TAG, RUN_TAG, DIGEST_TAG, ATTEMPT_TAG)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as connection:
            for sweep, run, *recorded in connection.execute(_QUERY, (experiment, *tags)):
                known.setdefault((sweep, run), []).append(Recorded(*recorded))
    except sqlite3.Error:
        return None
    return known
