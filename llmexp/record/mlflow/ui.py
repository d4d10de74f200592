"""A server of MLflow's own web page over the store that the runs are recorded in."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO, Any

from llmexp.errors import RecordError
from llmexp.machine.standstill import StandstillWatch
from llmexp.record.mlflow import door
from llmexp.record.mlflow.overview import OF_TRAINING, VIEW, VIEW_TAG
from llmexp.record.mlflow.sink import OUTPUTS
from llmexp.record.mlflow.store import artifact_root, check_store, connect, database_path, resolve_uri
from llmexp.record.process import die_with_parent
from llmexp.record.redact import redact
from llmexp.schema import TrackingConfig

HOST = "127.0.0.1"
_IDLE_S, _ENDS_WITHIN_S, _TRY_EVERY_S, _ASKED_S = 120.0, 10.0, 0.2, 5.0
# Past any proxy that the environment names: no other machine reaches this one's loopback interface.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def serve_ui(tracking: TrackingConfig, port: int, outputs: Path = OUTPUTS) -> int:
    """Serve the page on 127.0.0.1 until Ctrl-C or SIGTERM, and return an exit code.

    Raises RecordError or ConfigError where it cannot start.
    """
    uri = resolve_uri(tracking, outputs)
    check_store(tracking, outputs)
    if uri.startswith("http"):
        print(f"MLflow is served already: {redact(_page_elsewhere(uri, tracking.experiment))}")
        return 0
    _check_free(port)
    outputs.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    with (
        _sigterm_as_ctrl_c(),
        tempfile.TemporaryDirectory() as plugins,
        tempfile.TemporaryFile() as words,
        contextlib.suppress(KeyboardInterrupt),
    ):
        door.write_plugin(Path(plugins))
        server = _start(uri, port, words, {door.TOKEN_VARIABLE: token, "PYTHONPATH": _before(plugins)})
        try:
            _wait_until_up(server, port, words, token)
            print(f"MLflow UI: {page_of(port, tracking.experiment, token)}   (Ctrl-C ends it)")
            print(
                f"from your own machine: ssh -N -L {port}:{HOST}:{port} {getpass.getuser()}@{socket.gethostname()}",
                flush=True,
            )
            return server.wait()
        finally:
            _stop(server)
    return 0


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _before(folder: str) -> str:
    """Return PYTHONPATH with a folder in front."""
    return os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))


def _start(uri: str, port: int, words: IO[bytes], settings: dict[str, str]) -> subprocess.Popen[bytes]:
    if importlib.util.find_spec("mlflow") is None:
        raise RecordError("mlflow is not installed, so there is no UI: pip install mlflow")
    # The store's address may have a password, and everyone can see a command line, so the environment passes it.
    settings |= {
        "MLFLOW_BACKEND_STORE_URI": uri,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    database = database_path(uri)
    if database:
        settings |= {
            "MLFLOW_DEFAULT_ARTIFACT_ROOT": str(artifact_root(uri)),
            door.FOLDER_VARIABLE: str(database.parent),
        }
    options = {"host": HOST, "port": str(port), "workers": "1", "uvicorn-opts": "--log-level warning"} | {
        "app-name": door.APP
    }
    command = [sys.executable, "-m", "mlflow", "server", *(f"--{name}={value}" for name, value in options.items())]
    return subprocess.Popen(
        command,
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        stdout=words,
        stderr=words,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def page_of(port: int, experiment: str, token: str) -> str:
    """Return the address of the page of the experiment's runs, with the columns that reports keep for it.

    MLflow's default page is one for chat traces.
    """
    page = f"http://{HOST}:{port}/?{urllib.parse.urlencode({door.PARAMETER: token})}"
    query = urllib.parse.urlencode({"experiment_name": experiment})
    try:
        with _ask(port, f"api/2.0/mlflow/experiments/get-by-name?{query}", token) as answer:
            found = json.load(answer)["experiment"]
    except urllib.error.HTTPError:  # nothing is recorded yet
        return page
    return f"{page}{_runs_of(found['experiment_id'], [tag['key'] for tag in found.get('tags', ())])}"


def _page_elsewhere(uri: str, experiment: str) -> str:
    """Return the address of the same page on a server of one's own; the server's where it does not tell the number."""
    if importlib.util.find_spec("mlflow") is None:
        return uri
    from mlflow.exceptions import MlflowException

    try:
        found = connect(uri, _ASKED_S).get_experiment_by_name(experiment)
    except MlflowException:
        found = None
    return f"{uri.rstrip('/')}/{_runs_of(found.experiment_id, found.tags)}" if found else uri


def _runs_of(experiment_id: str, tags: Container[str]) -> str:
    """Return the end of the address of an experiment's runs, in the view of its reports where it has one."""
    address = f"#/experiments/{experiment_id}/runs?{OF_TRAINING}"
    return f"{address}&viewStateShareKey={VIEW}" if VIEW_TAG in tags else address


def _ask(port: int, path: str, token: str) -> Any:
    """Ask the server with its token."""
    bearer = {"Authorization": f"Bearer {token}"}
    return _LOCAL.open(urllib.request.Request(f"http://{HOST}:{port}/{path}", headers=bearer), timeout=_IDLE_S)


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise RecordError(
                f"port {port} of {HOST} is taken: choose another, as in `llmexp ui --port {port + 1}`"
            ) from None


def _wait_until_up(server: subprocess.Popen[bytes], port: int, words: IO[bytes], token: str) -> None:
    watch = StandstillWatch(server.pid, _IDLE_S)
    while not watch.stands_still():
        with contextlib.suppress(OSError), _ask(port, "health", token):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = server.wait(_TRY_EVERY_S)
            raise RecordError(f"the MLflow server ended with exit code {code}: {_complaint(words)}")
    raise RecordError(f"the MLflow server does not answer on port {port}, and has done nothing for {_IDLE_S:g} s")


def _complaint(words: IO[bytes]) -> str:
    """Return the last line that names an error, else the last line."""
    words.seek(0)
    lines = words.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
    return redact(next((line for line in reversed(lines) if "Error" in line), lines[-1]))


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server and the processes it started, which share a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_ENDS_WITHIN_S)
