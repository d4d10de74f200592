"""Many drivers at one MLflow server, which nothing but their own care keeps from recording a thing twice."""

import os
import threading
from collections.abc import Iterator

import pytest
from patience import HANG_S

from chaos.invariants import store_equals_folders
from chaos.tracker import Server
from llmexp.record.mlflow import Overview, record_report, record_runs, sync
from llmexp.schema import TrackingConfig


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.mark.sweep
def test_sixteen_drivers_of_one_sweep_record_at_once(make_run, outputs, server, record_at_once):
    """All of them make the experiment and the sweep's parent."""
    folders = [make_run("F", seed=seed, repeats=2).path for seed in range(16)]
    assert record_at_once(server.uri, "sixteen", [[folder] for folder in folders]) == ""
    assert list(store_equals_folders(server.uri, "sixteen", outputs / "main")) == []


@pytest.mark.slow
def test_drivers_that_record_the_same_runs_at_once_leave_each_there_once(make_run, outputs, server, record_at_once):
    folders = [make_run(method).path for method in ("Naive", "F")]
    assert record_at_once(server.uri, "same", [folders] * 4) == ""
    assert list(store_equals_folders(server.uri, "same", outputs / "main")) == []


@pytest.mark.slow
def test_a_driver_that_began_later_keeps_what_an_earlier_one_completed(
    make_run, outputs, server, monkeypatch, profiled_steps
):
    """The later one begins its copy while the earlier one writes, and goes on once the earlier one has looked."""
    from mlflow import MlflowClient

    folder = make_run()
    folder.write(folder.breakdown_path, profiled_steps)
    tracking = TrackingConfig(name="mlflow", uri=server.uri, experiment="overlap")
    begun, ended = threading.Event(), threading.Event()
    later = threading.Thread(target=lambda: sync([folder], tracking), name="later")
    create_run, set_terminated = MlflowClient.create_run, MlflowClient.set_terminated
    runs = []

    def create(client, experiment, start_ms, tags, run_name):
        made = create_run(client, experiment, start_ms, tags, run_name)
        if tags["llmexp.kind"] == "run":
            runs.append(made.info.run_id)
            if threading.current_thread() is later:
                begun.set()
                assert ended.wait(HANG_S)
        return made

    def terminate(client, run, *words):
        if [run] == runs and not begun.is_set():
            later.start()
            assert begun.wait(HANG_S)
        set_terminated(client, run, *words)

    monkeypatch.setattr(MlflowClient, "create_run", create)
    monkeypatch.setattr(MlflowClient, "set_terminated", terminate)
    sync([folder], tracking)
    ended.set()
    later.join(HANG_S)
    client = MlflowClient(server.uri)
    kept = [run for run in runs if client.get_run(run).info.lifecycle_stage == "active"]
    assert (kept, len(runs)) == (runs[:1], 2)
    [trace] = client.search_traces(locations=[client.get_experiment_by_name("overlap").experiment_id])
    assert [
        one.info.trace_id for one in client.search_traces(locations=[trace.info.experiment_id], run_id=kept[0])
    ] == [trace.info.trace_id]
    assert list(store_equals_folders(server.uri, "overlap", outputs / "main")) == []


def test_names_that_a_server_does_not_take_are_left_out_and_keep_no_run_from_it(make_run, outputs, server):
    from mlflow import MlflowClient

    folder = make_run()
    for name in ("a name\nof two lines", "50%23", "a#b", "C:x", os.fsdecode(b"latin-\xe9"), "notes (2).txt"):
        (folder.path / name).write_text("{")
    assert (
        str(sync([folder], TrackingConfig(name="mlflow", uri=server.uri, experiment="names")))
        == "1 recorded, 0 unchanged"
    )
    assert list(store_equals_folders(server.uri, "names", outputs / "main")) == []
    client = MlflowClient(server.uri)
    [run] = client.search_runs([client.get_experiment_by_name("names").experiment_id], "tags.`llmexp.kind` = 'run'")
    assert run.info.status == "FINISHED"
    kept = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {"result.json", "notes (2).txt"} <= kept
    assert not {name for name in kept if "name" in name or "50" in name or "#" in name or "latin" in name}


def test_a_request_that_was_sent_twice_leaves_one_run(make_run, outputs, server, monkeypatch):
    """As when the answer to the first did not come in time."""
    from mlflow import MlflowClient

    create_run = MlflowClient.create_run

    def twice(client, *words, **named):
        create_run(client, *words, **named)
        return create_run(client, *words, **named)

    monkeypatch.setattr(MlflowClient, "create_run", twice)
    tracking = TrackingConfig(name="mlflow", uri=server.uri, experiment="twice")
    record_runs([make_run()], tracking)
    report = outputs / "main" / "report.md"
    report.write_text("| table |\n")
    assert record_report([report], "d1", Overview(), tracking)
    assert list(store_equals_folders(server.uri, "twice", outputs / "main")) == []
    client = MlflowClient(server.uri)
    [parent] = client.search_runs(
        [client.get_experiment_by_name("twice").experiment_id], "tags.`llmexp.kind` = 'sweep'"
    )
    assert parent.data.tags["mlflow.note.content"].strip() == "| table |"


def test_a_server_has_a_runs_models_and_traces_once(make_run, outputs, server, profiled_steps):
    from mlflow import MlflowClient

    folder = make_run()
    folder.write(folder.breakdown_path, profiled_steps)
    weights = folder.repeat(0) / "adapter"
    weights.mkdir()
    (weights / "adapter_config.json").write_text("{}")
    tracking = TrackingConfig(name="mlflow", uri=server.uri, experiment="models")
    client = MlflowClient(server.uri)
    for stack in ("0123456789ab", "fedcba987654", "fedcba987654"):
        changed = {"what_ran": {"saved": ["repeat.0/adapter"]}, "stack": stack}
        folder.write(folder.result_path, folder.result().model_copy(update=changed))
        sync([folder], tracking)
    experiment = client.get_experiment_by_name("models").experiment_id
    [run] = client.search_runs([experiment], "tags.`llmexp.kind` = 'run'")
    [model] = client.search_logged_models([experiment])
    assert (model.source_run_id, str(model.status)) == (run.info.run_id, "READY")
    assert {one.key for one in model.metrics} == {"tokens_per_s"}
    [file] = client.list_logged_model_artifacts(model.model_id, "weights")
    assert file.path == "weights/adapter_config.json"
    [trace] = client.search_traces(locations=[experiment])
    assert [one.info.trace_id for one in client.search_traces(locations=[experiment], run_id=run.info.run_id)] == [
        trace.info.trace_id
    ]
    assert {"profiled step", "forward"} < {span.name for span in trace.data.spans}
    assert list(store_equals_folders(server.uri, "models", outputs / "main")) == []
