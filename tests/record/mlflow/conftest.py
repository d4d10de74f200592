import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from llmexp.record.mlflow import sink, store
from llmexp.schema import TrackingConfig

Runs = Callable[..., list[Run]]


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs, made once because making one takes a second."""
    database = tmp_path_factory.mktemp("store") / "mlflow.db"
    with warnings.catch_warnings(action="ignore"):
        store.connect(f"sqlite:///{database}", timeout_s=60)
    return database


@pytest.fixture
def tracking(outputs: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> TrackingConfig:
    """The default tracking, into SQLite in the outputs folder."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    outputs.mkdir()
    shutil.copy(empty_store, outputs / "mlflow.db")
    return TrackingConfig(name="mlflow")


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget failures of earlier tests."""
    monkeypatch.setattr(sink, "_gave_up", type(sink._gave_up)())


@pytest.fixture
def client(outputs: Path, tracking: TrackingConfig) -> MlflowClient:
    return MlflowClient(store.resolve_uri(tracking, outputs))


@pytest.fixture
def recorded(client: MlflowClient) -> Runs:
    """All MLflow runs whose tags have the given values, '_' for '.'; only those of kind 'run' unless told."""

    def search(kind: str = "run", **tags: Any) -> list[Run]:
        experiment = client.get_experiment_by_name("llmexp")
        if experiment is None:
            return []
        runs = client.search_runs([experiment.experiment_id], f"tags.`llmexp.kind` = '{kind}'", order_by=["start_time ASC"])
        return [run for run in runs if all(run.data.tags.get(name) == value for name, value in tags.items())]

    return search
