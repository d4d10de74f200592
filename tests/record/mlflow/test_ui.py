import io
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator

import psutil
import pytest
from patience import HANG_S

from llmexp.errors import RecordError
from llmexp.record.mlflow import Overview, record_report, record_runs, serve_ui, ui
from llmexp.record.mlflow.ui import page_of
from llmexp.schema import TrackingConfig

SERVE = """
import sys
from pathlib import Path
from llmexp.record.mlflow import serve_ui
from llmexp.schema import TrackingConfig
sys.exit(serve_ui(TrackingConfig(name="mlflow"), int(sys.argv[1]), Path(sys.argv[2])))
"""


# It computes for a while before it answers, or does nothing at all.
SLOW = """
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
while time.process_time() < float(sys.argv[2]): pass
class Answer(BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).handle_request()
"""
STILL = "import time; time.sleep(3600)"


def test_the_page_is_served_until_a_signal_and_leaves_no_process(make_run, tracking, outputs, port):
    run = make_run()
    record_runs([run], tracking)
    report = run.path.with_name("report.md")
    report.write_text("| method |\n")
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(port), str(outputs)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        said = re.fullmatch(
            rf"MLflow UI: (http://127.0.0.1:{port}/\?token=([\w-]+))#/experiments/1/runs"
            r"\?workflowType=machine_learning .*\n",
            server.stdout.readline(),
        )
        assert said
        url, token = said.groups()
        assert f"ssh -N -L {port}:127.0.0.1:{port} " in server.stdout.readline()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(url, timeout=60) as page:
            assert b"MLflow" in page.read()
        assert page_of(port, "llmexp", token).endswith("workflowType=machine_learning")
        record_report([report], "d1", Overview(("tokens_per_s",)), tracking)
        assert page_of(port, "llmexp", token).endswith("workflowType=machine_learning&viewStateShareKey=llmexp")
        started = psutil.Process(server.pid).children(recursive=True)
        assert started
        server.send_signal(signal.SIGTERM)
        assert server.wait(HANG_S) == 0
        assert psutil.wait_procs(started, timeout=HANG_S)[1] == []
    finally:
        server.kill()
        server.communicate()


def test_a_taken_port_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RecordError, match=rf"port {port} .* is taken"):
            serve_ui(TrackingConfig(name="mlflow", uri=f"sqlite:///{tmp_path}/mlflow.db"), port, tmp_path)


def test_a_store_that_mlflow_cannot_open_is_named_in_its_words(tmp_path, port):
    (tmp_path / "mlflow.db").write_text("not a database " * 100)
    with pytest.raises(RecordError, match=r"exit code 1: .*file is not a database"):
        serve_ui(TrackingConfig(name="mlflow", uri=f"sqlite:///{tmp_path}/mlflow.db"), port, tmp_path)


def test_a_server_elsewhere_is_named_without_its_password(capsys):
    assert serve_ui(TrackingConfig(name="mlflow", uri="https://me:hunter2hunter2@tracker.invalid"), 5000) == 0
    assert capsys.readouterr().out == "MLflow is served already: https://***@tracker.invalid\n"


def test_a_server_elsewhere_is_opened_on_the_experiments_runs(tracking, client, outputs, make_run, capsys, monkeypatch):
    record_runs([make_run()], tracking)
    monkeypatch.setattr(ui, "connect", lambda uri, timeout_s: client)
    assert serve_ui(TrackingConfig(name="mlflow", uri="http://tracker:5000/"), 5000) == 0
    [said] = capsys.readouterr().out.splitlines()
    assert said.endswith(" http://tracker:5000/#/experiments/1/runs?workflowType=machine_learning")


def test_an_experiment_that_somebody_else_made_counts_as_training(tracking, client, outputs, make_run):
    client.create_experiment("llmexp", f"{outputs}/mlartifacts")
    record_runs([make_run()], tracking)
    assert client.get_experiment("1").tags["mlflow.experimentKind"] == "custom_model_development"


@pytest.fixture
def server_of(port) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started = []

    def start(program: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", program, str(port), "2.5"], stderr=subprocess.DEVNULL))
        return started[-1]

    yield start
    for server in started:
        server.kill()
        server.wait()


def test_a_server_is_waited_for_while_it_works_and_given_up_once_it_stands_still(monkeypatch, port, server_of):
    monkeypatch.setattr(ui, "_IDLE_S", 2.0)
    ui._wait_until_up(server_of(SLOW), port, io.BytesIO(), "")
    with pytest.raises(RecordError, match=rf"does not answer on port {port}, and has done nothing for 2 s"):
        ui._wait_until_up(server_of(STILL), port, io.BytesIO(), "")
