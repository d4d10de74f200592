"""Prefill and decode on two servers behind one address: what each is asked, and how all of it ends."""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmexp.errors import ServerDiedError
from llmexp.launchers.serving.disaggregated.program import command_of, shares
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.record.plan import Command
from llmexp.record.port import HOST
from llmexp.serving.plan.server_plan import RequestForm, ServerPlan

PATIENCE_S = 60.0
TWO = str(Path(__file__).with_name("two_servers.py"))
ASKED = {"prompt": [5, 6], "max_tokens": 9, "stream": True, "stream_options": {"include_usage": True}}


@contextmanager
def apart(folder: Path, connector: str = "ExampleConnector") -> Iterator[Server]:
    program = ["{own_python}", "-m", "llmexp.launchers.serving.disaggregated.program", connector, "{scratch}", "0"]
    plan = ServerPlan(
        command=Command(argv=[*program, sys.executable, TWO, "--port", "{port}"]),
        form=RequestForm.completions(token_ids=True),
        key_variable="VLLM_API_KEY",
    )
    with Server(plan, folder, folder / "log.txt") as server:
        server.wait_ready(Patience(silent_s=PATIENCE_S))
        yield server


def ask(server: Server, method: str, path: str, body: Any = None, *, with_key: bool = True) -> tuple[int, str]:
    connection = HTTPConnection(HOST, server.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), server.headers if with_key else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def streamed(server: Server, body: Any) -> dict[str, Any]:
    status, text = ask(server, "POST", "/v1/completions", body)
    assert status == 200
    lines = [line for line in text.splitlines() if line]
    assert lines[1:] == ["data: [DONE]"]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("data: "))
    return found


def test_a_request_goes_to_the_server_that_generates_as_it_was_and_both_share_a_folder(tmp_path: Path) -> None:
    with apart(tmp_path) as server:
        found = streamed(server, ASKED)
        assert found["asked"] == ASKED
        assert found["config"]["kv_role"] == "kv_consumer"
        storage = Path(found["config"]["kv_connector_extra_config"]["shared_storage_path"])
        assert storage.is_dir()
        assert ask(server, "GET", "/metrics") == (200, 'of{role="kv_producer"} 1\nof{role="kv_consumer"} 1\n')
        every = server.processes()
    assert not storage.exists()
    assert psutil.wait_procs(every, timeout=PATIENCE_S)[1] == []


def test_a_router_that_is_killed_leaves_no_server_and_no_files(tmp_path: Path) -> None:
    with apart(tmp_path) as server:
        config = streamed(server, ASKED)["config"]
        storage = Path(config["kv_connector_extra_config"]["shared_storage_path"])
        (storage / "of a prompt").write_text("keys and values")
        (router,) = psutil.Process(server.pid).children()
        every = server.processes()
        router.kill()
        assert select.select([server], [], [], PATIENCE_S)[0]
        assert not storage.exists()
        assert psutil.wait_procs(every, timeout=PATIENCE_S)[1] == []


def test_what_a_killed_supervisor_has_left_is_removed_by_the_next_start_of_the_run(tmp_path: Path) -> None:
    with apart(tmp_path) as server:
        storage = Path(streamed(server, ASKED)["config"]["kv_connector_extra_config"]["shared_storage_path"])
        (storage / "of a prompt").write_text("keys and values")
        every = server.processes()
        for process in (psutil.Process(server.pid), *every):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(every, timeout=PATIENCE_S)
    assert storage.exists()
    with apart(tmp_path):
        assert not list(storage.iterdir())
    assert not storage.exists()


def test_with_nixl_the_prefill_says_where_its_keys_lie_and_the_decode_is_told(tmp_path: Path) -> None:
    with apart(tmp_path, "NixlConnector") as server:
        found = streamed(server, ASKED)
    given = found["asked"].pop("kv_transfer_params")
    assert found["asked"] == ASKED
    assert found["config"] == {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    first = given["prefill_was_asked"]
    assert (first["max_tokens"], first["stream"], "stream_options" in first) == (1, False, False)
    assert first["kv_transfer_params"]["do_remote_decode"] is True


def test_what_is_refused_is_passed_on_and_an_unknown_route_is_no_health(tmp_path: Path) -> None:
    with apart(tmp_path) as server:
        assert ask(server, "GET", "/nothing")[0] == 503
        assert ask(server, "POST", "/v1/completions", ASKED | {"prompt": [1] * 101}) == (400, "too long")


def test_a_request_without_the_servers_key_is_refused(tmp_path: Path) -> None:
    with apart(tmp_path) as server:
        assert server.headers
        assert ask(server, "POST", "/v1/completions", ASKED, with_key=False) == (401, "Unauthorized")


def test_where_one_server_ends_all_do(tmp_path: Path) -> None:
    with apart(tmp_path) as server:
        every = server.processes()
        ask(server, "GET", "/die")
        assert select.select([server], [], [], PATIENCE_S)[0]
        assert psutil.wait_procs(every, timeout=PATIENCE_S)[1] == []
        with pytest.raises(ServerDiedError, match="exit code 3"):
            server.check()


def test_each_server_has_a_port_and_devices_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_of(["serve", "--port", "1", "--host", "h"], 7) == ["serve", "--port", "7", "--host", "h"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    own = {"prefill": {"CUDA_VISIBLE_DEVICES": "4,5"}, "decode": {"CUDA_VISIBLE_DEVICES": "6,7"}}
    assert shares(2) == own
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert shares(1) == {"prefill": {"CUDA_VISIBLE_DEVICES": "0"}, "decode": {"CUDA_VISIBLE_DEVICES": "1"}}
