import sqlite3
from pathlib import Path

import pytest
import sqlalchemy

from benchmarks.folders import multiply
from llmexp.record.folder import find_runs
from llmexp.record.mlflow import record_runs, sync
from llmexp.record.mlflow.experiment import Experiment
from llmexp.record.mlflow.lookup import known_runs


def _as_searched(uri: str) -> dict[str, list[str | None]]:
    experiment = Experiment(uri, "llmexp")
    found: dict[str, list[str | None]] = {}
    for run in experiment.search({"llmexp.kind": "run"}):
        found.setdefault(run.data.tags["llmexp.run"], []).append(run.data.tags.get("llmexp.digest"))
    return found


def test_the_database_says_what_mlflows_search_says(make_run, tracking, outputs, client, recorded):
    folders = [make_run(method) for method in ("Naive", "F", "R", "Z2")]
    sync(folders, tracking)
    first, second, third, _ = recorded()
    client.delete_tag(first.info.run_id, "llmexp.digest")
    client.delete_run(second.info.run_id)
    client.create_run("1", start_time=10**13, tags=dict(third.data.tags))
    client.create_run("0", tags=dict(third.data.tags))
    known = known_runs(outputs / "mlflow.db", "llmexp")
    assert {run: [one.digest for one in found] for (_, run), found in known.items()} == _as_searched(
        f"sqlite:///{outputs}/mlflow.db"
    )
    assert {sweep for sweep, _ in known} == {"main"}
    assert known["main", third.data.tags["id"]][0].run_id == third.info.run_id
    assert len(known["main", third.data.tags["id"]]) == 2


@pytest.mark.parametrize("content", [b"", b"not a database"])
def test_another_database_says_nothing(tmp_path: Path, content: bytes):
    (tmp_path / "mlflow.db").write_bytes(content)
    assert known_runs(tmp_path / "mlflow.db", "llmexp") is None
    assert known_runs(tmp_path / "none.db", "1") is None


@pytest.mark.parametrize("number", [3, 30])
def test_without_the_database_mlflow_is_asked(make_run, tracking, outputs, monkeypatch, number):
    monkeypatch.setattr("llmexp.record.mlflow.tracker.known_runs", lambda database, experiment: None)
    multiply([make_run()], outputs, sweeps=1, runs=number)
    folders = find_runs(outputs / "sweep000")
    assert sync(folders, tracking).written == number
    assert sync(folders, tracking).unchanged == number


def _statements(work, *given) -> int:
    """How many SQL statements MLflow executes meanwhile."""
    loaded: list[str] = []

    def note(connection, cursor, statement, *others) -> None:
        loaded.append(statement)

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "before_cursor_execute", note)
    try:
        work(*given)
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "before_cursor_execute", note)
    return len(loaded)


def test_runs_that_are_there_cost_the_database_nothing_more_however_many(make_run, tracking, outputs):
    multiply([make_run()], outputs, sweeps=2, runs=20)
    folders = find_runs(outputs / "sweep000") + find_runs(outputs / "sweep001")
    sync(folders, tracking)
    few, many = (_statements(sync, folders[:number], tracking) for number in (1, 40))
    assert few == many


def test_a_run_costs_as_many_statements_among_many_as_the_next(make_run, tracking, outputs):
    """What does not grow with the runs: the experiment, the sweep's parent."""
    multiply([make_run()], outputs, sweeps=1, runs=21)
    first, *rest = find_runs(outputs / "sweep000")
    sync([first], tracking)
    three, six = (_statements(record_runs, rest[start:end], tracking) for start, end in ((0, 3), (3, 9)))
    nine = _statements(record_runs, rest[9:18], tracking)
    assert nine - six == six - three


def test_the_database_of_a_name_with_spaces(tmp_path: Path):
    path = tmp_path / "my store #1.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (run_uuid, experiment_id, lifecycle_stage, start_time)")
        connection.execute("CREATE TABLE experiments (experiment_id, name)")
        connection.execute("INSERT INTO experiments VALUES (1, 'mine')")
        connection.execute("CREATE TABLE tags (run_uuid, key, value)")
        connection.execute("INSERT INTO runs VALUES ('a', 1, 'active', 0)")
        connection.executemany(
            "INSERT INTO tags VALUES ('a', ?, ?)", [("llmexp.kind", "run"), ("llmexp.sweep", "s"), ("llmexp.run", "r")]
        )
    connection.close()
    assert [(key, one.digest) for key, [one] in known_runs(path, "mine").items()] == [(("s", "r"), None)]
