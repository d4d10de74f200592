import itertools
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest
from made_up_tokens import TOKENS, private_key
from marks import slow

from chaos.invariants import store_equals_folders
from llmexp.errors import RecordError
from llmexp.record.identity import process_identity
from llmexp.record.mlflow import Overview, record_report, record_runs, sync
from llmexp.record.mlflow.overview import shared_view
from llmexp.schema import TrackingConfig

PASSWORD, TOKEN = "hunter2hunter2", "tok-0123456789abcdef"


def test_a_run_and_its_sweep_are_recorded_with_everything_in_its_folder(make_run, tracking, client, recorded):
    folder = make_run("F+R+Z3", repeats=2)
    record_runs([folder], tracking)
    [parent], [run] = recorded("sweep"), recorded()
    assert (parent.info.run_name, parent.data.tags["llmexp.sweep"]) == ("main", "main")
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert run.info.status == parent.info.status == "FINISHED"
    expected = {
        "method": "F+R+Z3",
        "model": "tiny",
        "hardware": "cpu",
        "engine": "deepspeed",
        "status": "success",
        "stack": "0123456789ab",
    }
    assert expected.items() <= run.data.tags.items()
    assert run.data.tags["id"] == run.data.tags["llmexp.run"] == folder.result().id
    assert (
        run.data.params["model"],
        run.data.params["parallelism.dp"],
        run.data.params["batch.global"],
    ) == ("tiny", "2", "4")
    assert run.data.metrics["tokens_per_s"] == 7000.0
    assert run.data.metrics["tokens_per_s_std_between_repeats"] == 12.5
    names = {
        item.path
        for folder in ("", "repeat.0", "repeat.1/trace", "figures")
        for item in client.list_artifacts(run.info.run_id, folder)
    }
    top = {"plan.json", "result.json", "events.jsonl", "system.jsonl", "environment.json"}
    assert f"get-artifact?path=figures/loss.png&run_uuid={run.info.run_id}" in run.data.tags["mlflow.note.content"]
    deeper = {
        "repeat.0/samples.0.jsonl",
        "repeat.0/samples.1.jsonl",
        "repeat.0/log.1.txt",
        "repeat.1/trace/trace.0.json.gz",
        "figures/loss.png",
    }
    assert top | deeper <= names


def test_the_name_tells_a_run_from_all_others(make_run, tracking, recorded):
    folders = [make_run("F", engine__name=engine) for engine in ("deepspeed", "torch")]
    record_runs(folders, tracking)
    names = {run.data.tags["folder"]: run.info.run_name for run in recorded()}
    assert sorted(names) == sorted(folder.path.name for folder in folders)
    for folder in folders:
        assert re.fullmatch(rf"tiny F .* engine.name={folder.result().engine}", names[folder.path.name])


def test_metrics_have_steps_and_the_times_at_which_they_happened(make_run, tracking, client, recorded):
    folder = make_run()
    record_runs([folder], tracking)
    [run] = recorded()
    result = folder.result()
    loss = client.get_metric_history(run.info.run_id, "repeat.0/loss")
    assert [point.step for point in loss] == list(range(25))
    assert loss[3].value == pytest.approx(5.7)
    assert [later.timestamp - earlier.timestamp for earlier, later in itertools.pairwise(loss)] == pytest.approx(
        [100] * 24, abs=1
    )
    assert [
        point.value for point in client.get_metric_history(run.info.run_id, "system/cpu_utilization_percentage")
    ] == [50, 51, 52]
    assert 1e-3 * (run.info.end_time - run.info.start_time) == pytest.approx(50, abs=0.01)
    assert result.started_at.startswith(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(run.info.start_time / 1e3)))


@pytest.mark.parametrize(
    ("status", "mlflow_status"),
    [
        ("success", "FINISHED"),
        ("oom", "FINISHED"),
        ("skipped", "FINISHED"),
        ("timeout", "FAILED"),
        ("failed", "FAILED"),
    ],
)
def test_an_ending_is_told_by_status_and_tag(make_run, tracking, recorded, status, mlflow_status):
    record_runs([make_run(status=status)], tracking)
    [run] = recorded()
    assert (run.info.status, run.data.tags["llmexp.status"]) == (mlflow_status, status)


def test_syncing_twice_writes_nothing_the_second_time(make_run, tracking, outputs, recorded):
    folders = [make_run(method) for method in ("Naive", "F", "Z3")]
    first = sync(folders, tracking)
    before = (outputs / "mlflow.db").read_bytes()
    second = sync(folders, tracking)
    assert (first.written, second.written, second.unchanged) == (3, 0, 3)
    assert (outputs / "mlflow.db").read_bytes() == before
    assert (len(recorded()), len(recorded("sweep"))) == (3, 1)


def test_a_run_that_was_measured_again_replaces_its_earlier_record(make_run, tracking, recorded):
    folder = make_run()
    record_runs([folder], tracking)
    result = folder.result().model_copy(update={"stack": "fedcba987654"})
    folder.write(folder.result_path, result)
    record_runs([folder], tracking)
    [run] = recorded()
    assert run.data.tags["stack"] == "fedcba987654"


def test_a_record_that_was_cut_off_is_replaced(make_run, tracking, client, recorded):
    folder = make_run()
    sync([folder], tracking)
    client.delete_tag(recorded()[0].info.run_id, "llmexp.digest")
    client.create_run("1", tags=dict(recorded()[0].data.tags))
    assert sync([folder], tracking).written == 1
    assert len(recorded()) == 1


def test_the_same_run_in_another_sweep_is_another_record(make_run, tracking, recorded):
    sync([make_run(), make_run(sweep={"name": "other", "outputs": "outputs"})], tracking)
    assert sorted(run.info.run_name for run in recorded("sweep")) == ["main", "other"]
    assert len(recorded()) == 2


def test_parents_made_by_two_drivers_at_once_become_one(make_run, tracking, client, recorded):
    sync([make_run("F")], tracking)
    [first] = recorded("sweep")
    second = client.create_run("1", tags={"llmexp.sweep": "main", "llmexp.kind": "sweep"}).info.run_id
    client.set_tag(recorded()[0].info.run_id, "mlflow.parentRunId", second)
    sync([make_run("R")], tracking)
    assert [run.info.run_id for run in recorded("sweep")] == [first.info.run_id]
    assert {run.data.tags["mlflow.parentRunId"] for run in recorded()} == {first.info.run_id}


def test_a_killed_driver_is_recorded_as_killed(make_run, tracking, recorded):
    folder = make_run(status=None)
    script = "import sys, os; from llmexp.record.folder import *; from llmexp.record.identity import *\n"
    script += "RunFolder(sys.argv[1]).event('running', **process_identity()); os.kill(os.getpid(), 9)"
    driver = subprocess.run([sys.executable, "-c", script, str(folder.path)], check=False)
    assert driver.returncode == -signal.SIGKILL
    assert sync([folder], tracking).written == 1
    [run] = recorded()
    assert (run.info.status, run.data.tags["status"], run.data.tags["method"]) == ("KILLED", "killed", "Naive")
    assert run.info.end_time >= run.info.start_time
    assert sync([folder], tracking).unchanged == 1


def test_planned_and_running_runs_are_left_alone(make_run, tracking, recorded):
    planned, running = make_run("F", status=None), make_run("R", status=None)
    running.event("running", **process_identity())
    summary = sync([planned, running], tracking)
    assert (summary.written, summary.not_ended) == (0, 2)
    assert recorded() == []


def test_an_unreadable_folder_is_named_and_does_not_stop_the_others(make_run, tracking, recorded):
    broken, whole = make_run("F"), make_run("R")
    broken.result_path.write_text("{")
    summary = sync([broken, whole], tracking)
    assert summary.written == len(recorded()) == 1
    [reason] = summary.unreadable
    assert str(broken.result_path) in reason


def test_the_report_is_shown_on_the_sweeps_page(make_run, tracking, outputs, client, recorded):
    run = make_run()
    record_runs([run], tracking)
    table, figure = run.path.with_name("report.md"), run.path.with_name("report.png")
    table.write_text("| method | tokens/s |\n")
    figure.write_bytes(b"png")
    best = Overview(("tokens_per_s",), {"best/7b/tokens_per_s": 42.0}, ("1 run: 1 success", "fastest of 7b: Naive"))
    record_report([table, figure], "d1", best, tracking)
    [parent] = recorded("sweep")
    assert [item.path for item in client.list_artifacts(parent.info.run_id, "report")] == [
        "report/report.md",
        "report/report.png",
    ]
    assert parent.data.metrics == {"best/7b/tokens_per_s": 42.0}
    picture = f"- pictures: [report](get-artifact?path=report/report.png&run_uuid={parent.info.run_id})"
    shown = [line for line in parent.data.tags["mlflow.note.content"].splitlines() if line]
    assert shown == ["- 1 run: 1 success", "- fastest of 7b: Naive", picture, table.read_text().strip()]


def test_reports_keep_their_rates_as_columns_of_one_view(make_run, tracking, client, recorded):
    run = make_run()
    record_runs([run], tracking)
    table = run.path.with_name("report.md")
    table.write_text("| method | tokens/s |\n")
    for digest, columns in (("d1", ("tokens_per_s", "mfu")), ("d2", ("output_tokens_per_s",))):
        record_report([table], digest, Overview(columns), tracking)
    experiment = client.get_experiment(recorded("sweep")[0].info.experiment_id)
    state = json.loads(experiment.tags["mlflow.sharedViewState.llmexp"])
    assert [name for name in state["selectedColumns"] if name.startswith("metrics")] == [
        "metrics.`output_tokens_per_s`",
        "metrics.`tokens_per_s`",
        "metrics.`mfu`",
    ]
    assert state["orderByKey"] == "metrics.`output_tokens_per_s`"
    [shown] = client.search_runs([experiment.experiment_id], state["searchFilter"])
    assert shown.data.tags["folder"] == run.path.name


def test_a_view_that_somebody_else_wrote_is_replaced() -> None:
    assert (
        shared_view(("mfu",), "no json")
        == shared_view(("mfu",), '{"selectedColumns": 3}')
        == shared_view(("mfu",), None)
    )


def test_a_report_too_long_for_a_page_is_cut_between_its_lines(make_run, tracking, recorded):
    table = make_run().path.with_name("report.md")
    table.write_text("".join(f"| row {number} | {'x' * 90} |\n" for number in range(200)))
    record_report([table], "d1", Overview(), tracking)
    [parent] = recorded("sweep")
    note = parent.data.tags["mlflow.note.content"]
    *rows, last = note.strip().splitlines()
    assert rows == table.read_text().splitlines()[: len(rows)]
    assert last == "…"
    assert 7800 < len(note) <= 8000


def test_no_secret_reaches_the_store(make_run, tracking, outputs, monkeypatch, tmp_path):
    monkeypatch.setenv("FOO_TOKEN", TOKEN)
    secret_uri = f"http://me:{PASSWORD}@tracker.invalid:5000"
    folder = make_run(
        engine__options={"upload": {"url": "a place"}}
    )  # no plan of today may hold one, but an earlier version's may
    folder.plan_path.write_text(folder.plan_path.read_text().replace("a place", secret_uri))
    (folder.repeat(0) / "log.0.txt").write_text(f"login with {TOKEN} to {secret_uri}\n")
    assert PASSWORD in folder.plan_path.read_text()
    record_runs([folder], tracking)
    written = [outputs / "mlflow.db", *(path for path in (outputs / "mlartifacts").rglob("*") if path.is_file())]
    assert any(path.name == "log.0.txt" for path in written)
    for secret in (PASSWORD, TOKEN):
        assert [path for path in written if secret.encode() in path.read_bytes()] == []


def test_no_known_form_of_a_token_reaches_the_store(make_run, tracking, outputs):
    secrets = {**TOKENS, "a private key": private_key("RSA PRIVATE KEY")}
    folder = make_run(
        engine__options={"upload": {"url": "a place"}}
    )  # no plan of today may hold one, but an earlier version's may
    plan = folder.plan_path.read_text().replace('"a place"', json.dumps(secrets))
    folder.plan_path.write_text(plan)
    (folder.repeat(0) / "log.0.txt").write_text("\n".join(f"{issuer}: {secret}" for issuer, secret in secrets.items()))
    result = folder.result().model_copy(
        update={"reason": secrets["Hugging Face"], "environment": {"proxy": secrets["JWT"]}}
    )
    folder.write(folder.result_path, result)
    record_runs([folder], tracking)
    written = [outputs / "mlflow.db", *(path for path in (outputs / "mlartifacts").rglob("*") if path.is_file())]
    texts = [path.read_bytes() for path in written]
    assert len(texts) > 5
    assert [
        issuer
        for issuer, secret in secrets.items()
        if any(secret.splitlines()[-2:][0].encode() in text for text in texts)
    ] == []


def _only_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert "llmexp sync" in line
    return line


def test_a_tracker_that_is_down_costs_one_line_and_later_runs_nothing(make_run, capsys):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://me:{PASSWORD}@127.0.0.1:{closed.getsockname()[1]}"
        down = TrackingConfig(name="mlflow", uri=uri, timeout_s=20.0)
        record_runs([make_run("F")], down)
        assert PASSWORD not in _only_line(capsys)
        later = make_run("R")
        record_runs([later], down)
        assert capsys.readouterr() == ("", "")
        with pytest.raises(RecordError, match=r"127\.0\.0\.1"):
            sync([later], down)


def test_a_tracker_that_never_answers_is_given_up_in_time(make_run, capsys):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_s = time.monotonic()
        record_runs(
            [make_run()],
            TrackingConfig(name="mlflow", uri=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.5),
        )
        assert time.monotonic() - began_s < 60, "MLflow itself waits for minutes"
        assert "tracking.timeout_s=0.5" in _only_line(capsys)


def test_a_store_that_cannot_be_written_costs_one_line(make_run, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    record_runs([make_run()], TrackingConfig(name="mlflow", uri=f"sqlite:///{tmp_path}/file/mlflow.db"))
    assert re.search(r"Not a directory|File exists", _only_line(capsys))


def test_a_full_disk_costs_one_line_and_syncs_later(make_run, tracking, outputs, recorded, capsys):
    folder = make_run()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((outputs / "mlflow.db").stat().st_size, limits[1]))
    try:
        record_runs([folder], tracking)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "disk" in _only_line(capsys)
    assert sync([folder], tracking).written == 1
    assert len(recorded()) == 1


def test_without_mlflow_one_line_says_so(make_run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    record_runs([make_run()], TrackingConfig(name="mlflow"))
    assert "mlflow is not installed" in _only_line(capsys)


def test_tracking_none_records_nothing(make_run, outputs):
    record_runs([make_run()], TrackingConfig(name="none"))
    assert not (outputs / "mlflow.db").exists()


@pytest.mark.parametrize("drivers", [2, slow(4), pytest.param(16, marks=pytest.mark.sweep)])
def test_drivers_share_a_new_store(make_run, outputs, record_at_once, drivers):
    """All at once, from the database's creation on: one parent, nothing lost, nothing said."""
    folders = [make_run("F", seed=seed).path for seed in range(drivers)]
    uri = f"sqlite:///{outputs}/mlflow.db"
    assert record_at_once(uri, "together", [[folder] for folder in folders]) == ""
    assert list(store_equals_folders(uri, "together", outputs / "main")) == []
