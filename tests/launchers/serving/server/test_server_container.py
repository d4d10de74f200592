"""A server in a container, whose processes a daemon starts: it becomes ready, is seen, and ends with its client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from llmexp.errors import ServerDiedError
from llmexp.launchers.serving.server.container import Container
from llmexp.launchers.serving.server.process import Patience, Server
from llmexp.record.plan import Command
from llmexp.serving.plan.server_plan import RequestForm, ServerPlan

HERE = Path(__file__).parent
LONG = Patience(silent_s=300, in_all_s=600, between_s=0.02)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a daemon, with a program `docker` in PATH that asks it."""
    place, programs = tmp_path / "daemon", tmp_path / "bin"
    place.mkdir()
    programs.mkdir()
    program = [sys.executable, str(HERE / "made_up_docker.py"), str(place)]
    (programs / "docker").write_text(f'#!/bin/sh\nexec {" ".join(program)} "$@"\n')
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with subprocess.Popen([*program, "daemon"]) as daemon:
        yield place
        for process in psutil.Process(daemon.pid).children(recursive=True):
            process.kill()
        daemon.kill()


def plan(*words: str) -> ServerPlan:
    client = ["docker", "run", "--name", "{name}", "--publish", "127.0.0.1:{port}:80", "--volume", "{folder}:/model:ro"]
    argv = [*client, "image", sys.executable, str(HERE / "speaking_server.py"), "{inside}", *words]
    return ServerPlan(command=Command(argv=argv), container="docker", form=RequestForm.completions(token_ids=True))


def in_container(place: Path) -> psutil.Process:
    (told,) = place.glob("*.pid")
    return psutil.Process(int(told.read_text()))


def test_a_container_is_ready_when_its_published_port_answers_and_is_gone_when_it_is_stopped(
    docker: Path, tmp_path: Path
) -> None:
    with Server(plan("stubborn", "child"), tmp_path, tmp_path / "log.txt") as server:
        assert server.wait_ready(LONG) > 0
        inside = in_container(docker)
        below = inside.children(recursive=True)
        assert server.processes() == below, "the processes of the container, which are none of the client's"
        assert server.pid == inside.pid, "below which its memory is looked for"
        server.check()
    assert psutil.wait_procs([inside], timeout=1800)[1] == []
    assert (docker / "calls").read_text().splitlines()[-1].startswith("rm --force llmexp-")
    for process in below:
        process.kill()


def test_a_container_is_ended_where_llmexp_is_killed(docker: Path, tmp_path: Path) -> None:
    program = f"""
import signal, sys
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from test_server_container import LONG, plan
from llmexp.launchers.serving.server.process import Server
server = Server(plan(), Path({str(tmp_path)!r}), Path({str(tmp_path)!r}) / "log.txt")
server.wait_ready(LONG)
print("ready", flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "ready\n"
        inside = in_container(docker)
        os.kill(ours.pid, signal.SIGKILL)
    assert psutil.wait_procs([inside], timeout=1800)[1] == []


def test_a_container_that_does_not_start_is_told_by_its_program(docker: Path, tmp_path: Path) -> None:
    with pytest.raises(ServerDiedError, match=r"exit code 125; .* ends: .*No such image: image"):
        Server(plan("absent"), tmp_path, tmp_path / "log.txt").wait_ready(LONG)


def test_a_port_of_another_container_is_not_its_own(docker: Path, tmp_path: Path) -> None:
    (docker / "mine.port").write_text("80/tcp -> 127.0.0.1:4001")
    assert Container("docker", "mine").publishes(4001)
    assert not Container("docker", "mine").publishes(400)
    assert not Container("docker", "other").publishes(4001)
    assert Container("docker", "other").init_process() is None


def test_a_program_that_is_not_there_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not Container("podman", "mine").publishes(4001)


def test_every_start_of_a_run_has_a_container_of_the_same_name(tmp_path: Path) -> None:
    """So that the next start ends first what a machine that lost its power has left."""
    names = [Container.of("docker", tmp_path / log) for log in ("a.txt", "a.txt", "b.txt")]
    assert names[0] == names[1] != names[2]
    assert Container.of(None, tmp_path) is None
