"""Checks of the tracker addresses that people type: which ones MLflow can use, and what a wrong one may mean."""

from __future__ import annotations

import os
import re
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from llmexp.errors import ConfigError, nearest
from llmexp.record.redact import redact

SERVERS, DATABASES, DATABRICKS = (
    ("http", "https"),
    ("sqlite", "postgresql", "mysql", "mssql"),
    ("databricks", "databricks-uc", "uc"),
)
KINDS = (
    "http://host:port or https://…, sqlite:///folder/mlflow.db, "
    "another database (postgresql://…, mysql://…, mssql://…), databricks"
)
# With this variable set, MLflow still accepts a folder of files as its store.
FILES_ALLOWED = "MLFLOW_ALLOW_FILE_STORE"


def check_uri(uri: str, named: str) -> None:
    """Raise ConfigError where MLflow cannot use the address; `named` is the key, flag or variable that holds it."""
    scheme, _, rest = uri.partition(":")
    kind = scheme.lower().partition("+")[0]
    wrong = _wrong(uri, kind) if rest.startswith("//") else _without_slashes(uri, kind)
    if wrong is not None:
        raise ConfigError(f"{named}={redact(uri)}: {wrong} MLflow takes {KINDS}")


def _wrong(uri: str, kind: str) -> str | None:
    if kind == "sqlite" and not uri.startswith("sqlite:///"):
        return f"did you mean sqlite:///{uri.partition('://')[2]}?"
    if kind in SERVERS:
        return _wrong_server(uri)
    if kind in (*DATABASES, *DATABRICKS) or entry_points(group="mlflow.tracking_store", name=kind):
        return None
    if kind == "file":
        return _wrong_folder(uri.removeprefix("file://"))
    guess = nearest(kind, DATABASES)
    return f"did you mean {guess}://?" if guess else f"{kind}:// is unknown to MLflow;"


def _without_slashes(uri: str, kind: str) -> str | None:
    if kind in DATABRICKS:
        return None
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?", uri):
        return f"did you mean http://{uri}?"
    return _wrong_folder(uri.removeprefix("file:"))


def _wrong_server(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return f"{error};"
    return None if named else "it names no host;"


def _wrong_folder(path: str) -> str | None:
    """Suggest SQLite instead of a folder of files, in which MLflow no longer keeps new runs."""
    if os.environ.get(FILES_ALLOWED):
        return None
    return f"did you mean sqlite:///{path if path.endswith('.db') else path.rstrip('/') + '/mlflow.db'}?"
