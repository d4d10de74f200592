"""Starting a server, readiness, its death at any time, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, RemoteDisconnected
from pathlib import Path
from threading import Thread

import psutil
import pytest

from llmexp.errors import ServerDiedError, ServerNotReadyError
from llmexp.launch.server_address import API_KEY
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.record.plan import Command
from llmexp.record.port import HOST
from llmexp.serving.plan.server_plan import RequestForm, ServerPlan

SPEAKING = Path(__file__).with_name("speaking_server.py")
Start = Callable[..., Server]
# Long enough for the slowest machine; nothing waits for its end but where a server hangs.
LONG = Patience(silent_s=300, in_all_s=600, between_s=0.02)


def plan(*words: str) -> ServerPlan:
    command = Command(argv=["{python}", str(SPEAKING), "{port}", *words])
    return ServerPlan(command=command, form=RequestForm.completions(token_ids=True))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Server] = []

    def begin(*words: str) -> Server:
        started.append(Server(plan(*words), tmp_path, tmp_path / f"log.{len(started)}.txt"))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


def ask(server: Server, path: str) -> int:
    connection = HTTPConnection(HOST, server.port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_server_is_ready_when_it_answers_and_leaves_nothing_when_it_is_stopped(start: Start) -> None:
    server = start("child")
    told: list[str] = []
    assert server.wait_ready(LONG, told.append) > 0
    assert ask(server, "/health") == 200
    processes = server.processes()
    assert len(processes) == 2, "the server and its child, which is in a session of its own"
    server.check()
    assert server.stop() == -signal.SIGTERM
    assert not any(process.is_running() for process in processes)
    assert "serving" in server.last_words()


def test_a_server_has_its_number_of_threads_whatever_the_rank_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("MKL_NUM_THREADS", "64")
    with Server(plan(), tmp_path, tmp_path / "log.txt", threads=3) as server:
        server.wait_ready(LONG)
        (process,) = server.processes()
        seen = process.environ()
    assert (seen["OMP_NUM_THREADS"], seen["MKL_NUM_THREADS"]) == ("3", "3")


def test_a_server_runs_in_its_own_environment_and_finds_that_environments_programs(tmp_path: Path) -> None:
    python = tmp_path / "own" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nOWN=yes exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with Server(plan().model_copy(update={"python": str(python)}), tmp_path, tmp_path / "log.txt") as server:
        server.wait_ready(LONG)
        (process,) = server.processes()
        seen = process.environ()
    assert (seen["OWN"], seen["PATH"].split(os.pathsep)[0]) == ("yes", str(python.parent))


@pytest.mark.slow
def test_a_server_that_ignores_sigterm_is_killed(start: Start) -> None:
    server = start("stubborn")
    server.wait_ready(LONG)
    processes = server.processes()
    server.stop()
    assert not any(process.is_running() for process in processes)


def test_a_server_that_ends_while_it_starts_is_told_with_its_code_and_log(start: Start) -> None:
    with pytest.raises(ServerDiedError, match=r"ended with exit code 1; .*log\.0\.txt ends: no such model\n") as died:
        start("dies").wait_ready(LONG)
    assert died.value.code == 1


def test_a_server_that_dies_later_is_noticed_by_its_descriptor_and_by_check(start: Start) -> None:
    server = start()
    server.wait_ready(LONG)
    assert select.select([server], [], [], 0)[0] == []
    with pytest.raises(RemoteDisconnected):
        ask(server, "/die?7")
    assert select.select([server], [], [], 300)[0] == [server]
    with pytest.raises(ServerDiedError, match=r"exit code 7; .* ends: last words\n") as died:
        server.check()
    assert died.value.code == 7
    (note,) = died.value.__notes__
    assert re.search(r"the end of .*log\.0\.txt:\nserving .*\nlast words$", note)


def test_a_killed_server_is_told_with_its_signal(start: Start) -> None:
    server = start()
    server.wait_ready(LONG)
    server.processes()[0].kill()
    assert select.select([server], [], [], 300)[0] == [server]
    with pytest.raises(ServerDiedError, match=r"was ended by SIGKILL; .*log\.0\.txt ends: serving"):
        server.check()


def test_a_server_that_died_as_the_kernel_killed_for_memory_ran_out_of_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter([7, 8])
    monkeypatch.setattr("llmexp.launchers.serving.server.process.oom_kills", lambda: next(kills))
    server = start()
    server.wait_ready(LONG)
    server.processes()[0].kill()
    assert select.select([server], [], [], 300)[0] == [server]
    with pytest.raises(
        ServerDiedError, match="and meanwhile the kernel killed a process because host memory ran out"
    ) as died:
        server.check()
    assert died.value.is_out_of_memory


@pytest.mark.parametrize("word", ["silent", "unhealthy"])
def test_a_server_that_does_not_answer_is_given_up_and_ended(start: Start, word: str) -> None:
    server = start(word)
    with pytest.raises(ServerNotReadyError, match=r"does not answer GET /health at 127\.0\.0\.1"):
        server.wait_ready(Patience(silent_s=0.5, in_all_s=600, between_s=0.02))
    processes = server.processes()
    server.stop()
    assert not any(process.is_running() for process in processes)


def test_a_taken_port_is_tried_once_more_with_another(start: Start, tmp_path: Path) -> None:
    server = start("clashes", str(tmp_path / "clashed"))
    server.wait_ready(LONG)
    assert ask(server, "/health") == 200
    assert (tmp_path / "clashed").exists()


def test_a_server_that_binds_plainly_gets_a_port_that_is_not_held(start: Start) -> None:
    server = start("plain")
    server.wait_ready(LONG)
    assert ask(server, "/health") == 200
    assert "Address already in use" in server.log.read_text()


def test_a_server_that_another_program_answers_for_is_not_ready(start: Start) -> None:
    """Another program listens at the very port; only what listens in our own processes counts."""
    server = start("silent")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, server.port))
        other.listen()

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

        Thread(target=answer, daemon=True).start()
        with pytest.raises(ServerNotReadyError):
            server.wait_ready(Patience(silent_s=0.5, in_all_s=600, between_s=0.02, answer_s=0.2))


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_server_process import LONG, plan
from llmexp.launchers.serving.server.process import Server
server = Server(plan("child"), Path({folder!r}), Path({folder!r}) / "log.txt")
server.wait_ready(LONG)
print([process.pid for process in server.processes()], flush=True)
signal.pause()
"""


def test_nothing_stays_where_our_own_process_is_killed(tmp_path: Path) -> None:
    program = KILLED.format(here=str(SPEAKING.parent), folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        processes = [psutil.Process(pid) for pid in json.loads(ours.stdout.readline())]
        assert len(processes) == 2
        os.kill(ours.pid, signal.SIGKILL)
    assert psutil.wait_procs(processes, timeout=1800)[1] == []


def test_a_server_is_told_the_key_by_its_own_variable_and_a_key_of_the_shell_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key is on a command line, which every user of a machine can read."""
    monkeypatch.setenv("SERVER_KEY", "of another server")
    wanting = plan().model_copy(update={"key_variable": "SERVER_KEY"})
    own = plan().model_copy(update={"key_variable": API_KEY})
    drawn = set()
    for wants, key in ((wanting, "made-up-key"), (wanting, ""), (wanting, ""), (own, "")):
        monkeypatch.setenv(API_KEY, key)
        with Server(wants, tmp_path, tmp_path / "log.txt") as server:
            server.wait_ready(LONG)
            told = server.processes()[-1].environ().get(wants.key_variable)
            assert server.headers == ({"Authorization": f"Bearer {told}"} if told else {})
            assert not any(told in word for one in server.processes() for word in one.cmdline() if told)
        drawn.add(told)
    # Without a key of the user's each start has one of its own, but for a command of the user's.
    assert {"made-up-key", None} < drawn
    assert len(drawn) == 4
    assert "of another server" not in drawn
