from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import HANG_S

from llmexp.record.mlflow import sink, store
from llmexp.schema import TrackingConfig

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Runs = Callable[..., "list[Run]"]
# Starts drivers that have imported MLflow already and begin together: a store, an experiment, then the folders of
# each driver, joined by :.
DRIVERS = """
import os, sys, mlflow
from pathlib import Path
from llmexp.record.folder import RunFolder
from llmexp.record.mlflow import record_runs
from llmexp.schema import TrackingConfig
tracking = TrackingConfig(name="mlflow", uri=sys.argv[1], experiment=sys.argv[2], timeout_s=300)
wait, go = os.pipe()
drivers = []
for folders in sys.argv[3:]:
    drivers.append(os.fork())
    if not drivers[-1]:
        os.close(go)
        os.read(wait, 1)
        record_runs([RunFolder(Path(folder)) for folder in folders.split(":")], tracking)
        os._exit(0)
os.close(go)
sys.exit(max(os.waitpid(driver, 0)[1] for driver in drivers))
"""


@pytest.fixture
def tracking(outputs: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> TrackingConfig:
    """The default tracking, into SQLite in the outputs folder."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    outputs.mkdir()
    shutil.copy(empty_store, outputs / "mlflow.db")
    return TrackingConfig(name="mlflow")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget failures of earlier tests."""
    monkeypatch.setattr(sink, "_gave_up", type(sink._gave_up)())


@pytest.fixture
def client(outputs: Path, tracking: TrackingConfig) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(store.resolve_uri(tracking, outputs))


@pytest.fixture
def recorded(client: MlflowClient) -> Runs:
    """All MLflow runs whose tags have the given values, '_' for '.'; only those of kind 'run' unless told."""

    def search(kind: str = "run", **tags: Any) -> list[Run]:
        experiment = client.get_experiment_by_name("llmexp")
        if experiment is None:
            return []
        runs = client.search_runs(
            [experiment.experiment_id], f"tags.`llmexp.kind` = '{kind}'", order_by=["start_time ASC"]
        )
        return [run for run in runs if all(run.data.tags.get(name) == value for name, value in tags.items())]

    return search


@pytest.fixture
def record_at_once() -> Callable[[str, str, Sequence[Sequence[Path]]], str]:
    """Let each of several drivers record its folders in the store of this address, and return what they say.

    They record all at once.
    """

    def record(uri: str, experiment: str, drivers: Sequence[Sequence[Path]]) -> str:
        folders = [":".join(map(str, paths)) for paths in drivers]
        done = subprocess.run(
            [sys.executable, "-c", DRIVERS, uri, experiment, *folders],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=True,
        )
        return done.stdout + done.stderr

    return record
