import signal
import socket
import subprocess
import sys
import urllib.request

import psutil
import pytest
from patience import HANG_S

from llmexp.errors import RecordError
from llmexp.record.mlflow import Overview, record_report, record_runs, serve_ui
from llmexp.record.mlflow.ui import page_of
from llmexp.schema import TrackingConfig

SERVE = """
import sys
from pathlib import Path
from llmexp.record.mlflow import serve_ui
from llmexp.schema import TrackingConfig
sys.exit(serve_ui(TrackingConfig(name="mlflow"), int(sys.argv[1]), Path(sys.argv[2])))
"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_the_page_is_served_until_a_signal_and_leaves_no_process(make_run, tracking, outputs, port):
    run = make_run()
    record_runs([run], tracking)
    report = run.path.with_name("report.md")
    report.write_text("| method |\n")
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(port), str(outputs)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{port}"
        assert f" {url}/#/experiments/1/runs?workflowType=machine_learning " in server.stdout.readline()
        assert f"ssh -N -L {port}:127.0.0.1:{port} " in server.stdout.readline()
        with urllib.request.urlopen(url, timeout=60) as page:
            assert b"MLflow" in page.read()
        assert page_of(port, "llmexp").endswith("workflowType=machine_learning")
        record_report([report], "d1", Overview(("tokens_per_s",)), tracking)
        assert page_of(port, "llmexp").endswith("workflowType=machine_learning&viewStateShareKey=llmexp")
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
