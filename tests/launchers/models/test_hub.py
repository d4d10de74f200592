"""Hub names are fetched from a server that speaks the hub's protocol.

They are found in the cache without one, and refused in one line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from patience import HANG_S

NAME, COMMIT = "someone/small", "0123456789abcdef0123456789abcdef01234567"
NOBODY = "http://127.0.0.1:9"
HEADER = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": len(HEADER).to_bytes(8, "little") + HEADER + bytes(8),
    "tokenizer.json": b"{}",
    "pytorch_model.bin": b"pickled",
    "consolidated.safetensors": b"the same again",
    "modeling.py": b"raise SystemExit('this code ran')",
}


class Hub(BaseHTTPRequestHandler):
    """What snapshot_download asks of a hub: the names of a revision's files, and the files."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        body = FILES.get(name)
        if self.path.startswith(f"/api/models/{NAME}/revision/"):
            body = json.dumps({"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": file} for file in FILES]}).encode()
        elif self.path.startswith(f"/api/models/{NAME}/tree/"):
            body = json.dumps(
                [{"type": "file", "path": file, "size": len(FILES[file]), "oid": file} for file in FILES]
            ).encode()
        self.send_response(404 if body is None else 200)
        if body is None:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("ETag", f'"{name}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body or b"")

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(cache: Path, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    env = {**clean, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "HF_ENDPOINT": NOBODY, **variables}
    return subprocess.run(
        [sys.executable, "-m", "llmexp.launchers.models.hub", name],
        env=env,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_a_name_is_fetched_once_and_only_what_is_needed_of_it(hub: str, tmp_path: Path) -> None:
    done = fetch(tmp_path, NAME, HF_ENDPOINT=hub)
    assert done.returncode == 0, done.stderr
    (snapshot,) = tmp_path.glob("hub/models--*/snapshots/*")
    assert {path.name for path in snapshot.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (snapshot / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert fetch(tmp_path, NAME, HF_HUB_OFFLINE="1").returncode == 0
    assert fetch(tmp_path, NAME).returncode == 0


def test_a_name_that_the_hub_has_not_is_one_line(hub: str, tmp_path: Path) -> None:
    done = fetch(tmp_path, "someone/else", HF_ENDPOINT=hub)
    assert (
        last_line(done)
        == "model.path=someone/else is neither a local folder nor a Hugging Face hub model that this user can read"
    )


@pytest.mark.parametrize(
    ("variables", "why"), [({"HF_HUB_OFFLINE": "1"}, "offline mode is enabled"), ({}, "Connection refused")]
)
def test_without_a_network_and_a_cache_it_is_one_line(tmp_path: Path, variables: dict[str, str], why: str) -> None:
    line = last_line(fetch(tmp_path, NAME, **variables))
    assert line.startswith(
        f"model.path={NAME} is neither a local folder nor in the Hugging Face cache, and the hub cannot be reached: "
    )
    assert why in line


def test_what_is_no_name_is_one_line(tmp_path: Path) -> None:
    assert "neither a local folder nor a Hugging Face hub name" in last_line(fetch(tmp_path, "not/a/name"))
