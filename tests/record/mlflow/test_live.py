"""Runs that are seen in MLflow while they go on: real ranks, and a real server or what stands in its place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from patience import HANG_S, until

from chaos.tracker import Server
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.mlflow import sync
from llmexp.record.mlflow.live import _end, is_followed
from llmexp.schema import TrackingConfig

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

pytestmark = [pytest.mark.ranks, pytest.mark.long]

# It waits before its sixth step, so that the test decides when the run ends.
PROGRAM = """
import time
from pathlib import Path
from llmexp import hook
for step in range(10):
    while step == 5 and not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    hook.step(tokens=350, loss=float(step))
"""
WAITING = (
    "engine=script",
    "engine.launcher=python",
    "measure.steps=7",
    "measure.warmup_steps=1",
    "data.seq_len=350",
    "engine.options.command=train.py",
)
TRAINING = (
    "engine=torch",
    "measure.steps=100000",
    "model.num_layers=1",
    "measure.threads_per_rank=1",
    "data.seq_len=16",
)
SHORT = ("model=tiny", "hardware=cpu", "measure=smoke", "measure.profile=false", "tracking.live=true")


class Driver:
    """A driver with a run that lasts as long as the test wants."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder, self._said = folder, folder / "said.txt"
        (folder / "train.py").write_text(PROGRAM)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "llmexp", *SHORT, *words],
                cwd=folder,
                env=environment | {"CUDA_VISIBLE_DEVICES": ""},
                stdout=said,
                stderr=said,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def run(self) -> RunFolder:
        (found,) = find_runs(self.folder / "outputs")
        return found

    def meanwhile(self, holds: Callable[[], object]) -> None:
        """Wait until something holds while the run goes on."""
        until(lambda: self.process.poll() is not None or holds())
        assert self.process.poll() is None, self.said

    def let_end(self) -> int:
        (self.folder / "go").touch()
        return self.process.wait(HANG_S)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    started: list[Driver] = []

    def start(*words: str) -> Driver:
        started.append(Driver(tmp_path, *words))
        return started[-1]

    yield start
    for driver in started:
        driver.process.kill()
        driver.process.wait()


def runs_of(client: MlflowClient, experiment: str) -> list[Run]:
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id], "tags.`llmexp.kind` = 'run'")) if found else []


def history(client: MlflowClient, run: Run) -> Counter[Any]:
    """All points of all metrics; a point that is there twice counts twice."""
    found = (point for name in run.data.metrics for point in client.get_metric_history(run.info.run_id, name))
    return Counter((point.key, point.step, point.timestamp, point.value) for point in found)


def steps_of(client: MlflowClient, experiment: str, name: str = "repeat.0/loss") -> list[int]:
    found = [client.get_metric_history(run.info.run_id, name) for run in runs_of(client, experiment)]
    return [point.step for points in found for point in points]


@pytest.mark.slow
def test_steps_come_while_a_run_goes_on_and_the_copy_at_its_end_completes_them(
    drive: Callable[..., Driver], server: Server, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(server.uri)
    driver = drive(*WAITING, f"tracking.uri={server.uri}", "tracking.experiment=live", f"tracking.timeout_s={HANG_S:g}")
    driver.meanwhile(lambda: steps_of(client, "live") == [0, 1, 2, 3, 4])
    [going] = runs_of(client, "live")
    assert driver.run.result() is None
    assert (going.info.status, going.data.tags["status"]) == ("RUNNING", "running")
    assert {"repeat.0/step_time_s", "repeat.0/tokens_per_s", "repeat.0/memory_bytes"} <= going.data.metrics.keys()
    assert going.data.params["method"] == "Naive"
    page = f"#/experiments/{going.info.experiment_id}/runs/{going.info.run_id}/model-metrics"
    assert f"in MLflow: {server.uri}/{page}?workflowType=machine_learning\n" in driver.said
    assert driver.let_end() == 0, driver.said
    [ended] = runs_of(client, "live")
    assert (ended.info.run_id, ended.info.status, ended.data.tags["status"]) == (
        going.info.run_id,
        "FINISHED",
        "success",
    )
    copied = TrackingConfig(name="mlflow", uri=f"sqlite:///{tmp_path}/copy.db")
    assert sync([driver.run], copied).written == 1
    copy = MlflowClient(copied.uri)
    [same] = runs_of(copy, "llmexp")
    assert history(client, ended) == history(copy, same)
    assert ended.data.params == same.data.params
    ours = {
        name: value for name, value in ended.data.tags.items() if not name.startswith(("mlflow.", "llmexp.attempt"))
    }
    assert ours.items() <= same.data.tags.items()


@pytest.mark.slow
def test_what_a_killed_driver_had_begun_is_completed_by_sync(drive: Callable[..., Driver], server: Server) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(server.uri)
    driver = drive(*TRAINING, f"tracking.uri={server.uri}", "tracking.experiment=killed")
    driver.meanwhile(lambda: steps_of(client, "killed"))
    of_driver = psutil.Process(driver.process.pid).children(recursive=True)
    driver.process.send_signal(signal.SIGKILL)
    driver.process.wait()
    until(lambda: not any(map(psutil.Process.is_running, of_driver)))
    [going] = runs_of(client, "killed")
    assert going.info.status == "RUNNING"
    assert sync([driver.run], TrackingConfig(name="mlflow", uri=server.uri, experiment="killed")).written == 1
    [ended] = runs_of(client, "killed")
    assert (ended.info.run_id, ended.info.status) == (going.info.run_id, "KILLED")
    steps = steps_of(client, "killed")
    assert sorted(steps) == list(range(len(steps)))


@pytest.mark.slow
def test_a_tracker_that_refuses_costs_one_line_and_the_run_nothing(drive: Callable[..., Driver]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        driver = drive(*WAITING, f"tracking.uri=http://127.0.0.1:{closed.getsockname()[1]}", "tracking.timeout_s=1")
        driver.meanwhile(lambda: "is not seen in MLflow while it goes on" in driver.said)
        assert driver.let_end() == 0
    assert driver.said.count("is not seen in MLflow while it goes on") == 1
    result = driver.run.result()
    assert result
    assert (result.status, result.repeats) == ("success", 1)


def test_a_follower_that_does_not_end_is_killed() -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(1000)"
    stubborn = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert stubborn.stdout
        stubborn.stdout.readline()
        _end(stubborn)
        assert stubborn.poll() == -signal.SIGKILL
    finally:
        stubborn.kill()
        stubborn.communicate()


@pytest.mark.slow
def test_a_tracker_that_never_answers_is_left_behind_at_the_runs_end(drive: Callable[..., Driver]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # So long that a driver which waited for an answer would be seen.
        driver = drive(*WAITING, f"tracking.uri=http://127.0.0.1:{silent.getsockname()[1]}", "tracking.timeout_s=3")
        silent.settimeout(HANG_S)
        asked, _ = silent.accept()
        with asked:
            (follower,) = (
                process
                for process in psutil.Process(driver.process.pid).children()
                if "llmexp.record.mlflow.follower" in process.cmdline()
            )
            assert driver.let_end() == 0
        assert not follower.is_running()
    result = driver.run.result()
    assert result
    assert result.status == "success"


@pytest.mark.parametrize(
    ("live", "name", "uri", "hardware", "follows"),
    [
        ("auto", "mlflow", "http://tracker:5000", "h100", True),
        ("auto", "mlflow", "https://tracker", "h100", True),
        ("auto", "mlflow", "http://tracker:5000", "cpu", False),
        ("auto", "mlflow", None, "h100", False),
        (True, "mlflow", None, "cpu", True),
        (False, "mlflow", "http://tracker:5000", "h100", False),
        (True, "none", "http://tracker:5000", "h100", False),
    ],
)
def test_by_itself_it_follows_runs_on_gpus_whose_tracker_is_a_server(
    tiny_plan: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    live: Any,
    name: Any,
    uri: Any,
    hardware: str,
    follows: bool,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    plan = tiny_plan(hardware__name=hardware, tracking={"name": name, "uri": uri, "live": live})
    assert is_followed(plan, tmp_path) is follows
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
    if uri is None and name == "mlflow":
        assert is_followed(plan, tmp_path) is True
