"""The MLflow store: its address, a client that does not wait long, and a lock for one writer at a time."""

from __future__ import annotations

import fcntl
import gc
import logging
import math
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from llmexp.errors import ConfigError, RecordError
from llmexp.record.filesystem import ELSEWHERE, unsafe_for_sqlite
from llmexp.record.tracking_uri import check_uri
from llmexp.schema import TrackingConfig

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SQLITE = "sqlite:///"
_REQUEST_TIMEOUT_S = 10.0
_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
_CHATTY_LOGGERS = ("mlflow", "alembic", "urllib3")


def resolve_uri(tracking: TrackingConfig, outputs: Path) -> str:
    """Return the tracker's URI: the configured one, else MLFLOW_TRACKING_URI, else SQLite in the outputs folder."""
    return tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{outputs.resolve()}/mlflow.db"


def artifact_root(uri: str) -> str | None:
    """Return the folder of artifacts beside a SQLite store; None where a server decides."""
    database = database_path(uri)
    return str(database.parent / "mlartifacts") if database else None


def database_path(uri: str) -> Path | None:
    """Return the file of a SQLite store; None for any other store."""
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]).resolve() if uri.startswith(_SQLITE) else None


def check_store(tracking: TrackingConfig, outputs: Path) -> None:
    """Raise ConfigError where MLflow cannot use the address, or the store is SQLite in a place that is not safe."""
    uri = resolve_uri(tracking, outputs)
    check_uri(uri, "tracking.uri" if tracking.uri else "MLFLOW_TRACKING_URI")
    database = database_path(uri)
    if database and (unsafe := unsafe_for_sqlite(database.parent)):
        raise ConfigError(f"no SQLite store for MLflow: {unsafe}: {ELSEWHERE}")


def connect(uri: str, timeout_s: float) -> MlflowClient:
    """Open a client whose requests fail rather than wait; raises RecordError where mlflow is not installed."""
    waits = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(math.ceil(min(timeout_s, _REQUEST_TIMEOUT_S))),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    }
    for name, value in (_QUIET | waits).items():
        os.environ.setdefault(name, value)  # the only way to tell mlflow
    with _imported_once():
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise RecordError("mlflow is not installed") from None
        for logger in _CHATTY_LOGGERS:
            logging.getLogger(logger).setLevel(logging.CRITICAL)  # the error repeats what they log
        database = database_path(uri)
        if database and not database.exists():
            _create(database)
        return MlflowClient(uri)


@contextmanager
def _imported_once() -> Iterator[None]:
    """Keep the garbage collector from the objects of MLflow's modules: it would go through all of them for nothing."""
    if "mlflow" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _create(database: Path) -> None:
    """Make a store's tables under another name, because nothing repairs tables that a kill left half made."""
    from mlflow import MlflowClient

    fresh = database.with_name(f".{database.name}.{uuid.uuid4().hex}")
    try:
        MlflowClient(f"{_SQLITE}{fresh}").search_experiments(max_results=1)
        fresh.replace(database)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def only_writer(uri: str) -> Iterator[None]:
    """Let several drivers write to one SQLite store in turn, so that none creates what another just did."""
    database = database_path(uri)
    if database is None:
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with database.with_name(f".{database.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
