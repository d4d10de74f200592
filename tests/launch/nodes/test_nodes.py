"""A run on two "machines": two drivers that share nothing but the outputs folder and a port.

Each has one rank and a temporary folder of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from patience import HANG_S, until

from llmexp.launch import run
from llmexp.launch.nodes.channel import PATIENCE_S, Channel
from llmexp.launch.nodes.messages import Ended, Here, Start, Welcome
from llmexp.launch.nodes.peers import PeerNodes
from llmexp.launch.nodes.place import Place
from llmexp.launch.nodes.secret import make_secret
from llmexp.launch.ranks import LOOPBACK
from llmexp.launch.run import run_one
from llmexp.launch.stack import stack_digest
from llmexp.machine import memory
from llmexp.record.folder import RunFolder
from llmexp.record.plan import Command
from llmexp.record.result import RunStatus
from llmexp.training.plan.training_plan import TrainingPlan

HERE = Path(__file__).parent
OTHER = f"node 1 ({socket.gethostname()})"


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def make(
    make_plan: Callable[..., TrainingPlan], port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., TrainingPlan]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def plan(behavior: str = "well", **measure: object) -> TrainingPlan:
        planned = make_plan(**measure)
        config = planned.config
        changes = {
            "hardware": config.hardware.model_copy(update={"nodes": 2, "devices_per_node": 1}),
            "node": config.node.model_copy(update={"rank": 0, "address": "127.0.0.1", "port": port}),
        }
        argv = [sys.executable, str(HERE / "node_agent.py"), "{folder}", "{node}", "{address}:{port}", behavior]
        return planned.model_copy(update={"config": config.model_copy(update=changes), "command": Command(argv=argv)})

    return plan


@pytest.fixture(autouse=True)
def dismiss(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Let the others go that this test has gathered; no other test has them."""
    gathered: dict[Place, PeerNodes] = {}

    def of(place: Place, within_s: float, sweep: Path) -> PeerNodes:
        return gathered.setdefault(place, PeerNodes(place, within_s, sweep))

    monkeypatch.setattr(run, "peers_of", of)

    def close() -> None:
        for one in gathered.values():
            one.close()

    yield close
    close()


@pytest.fixture
def second(port: int, folder: RunFolder, tmp_path: Path) -> Iterator[Callable[[], psutil.Popen]]:
    started: list[psutil.Popen] = []

    def start(*words: str) -> psutil.Popen:
        (tmp_path / "second").mkdir(exist_ok=True)
        env = {**os.environ, "TMPDIR": str(tmp_path / "second")}
        started.append(
            psutil.Popen(
                [sys.executable, str(HERE / "joiner.py"), "1", str(port), str(folder.path.parent), *words],
                env=env,
                stderr=subprocess.PIPE,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_both_machines_run_their_ranks_and_the_first_records(make, folder: RunFolder, second, tmp_path: Path) -> None:
    joined = second()
    result = run_one(make(repeats=2), folder)
    assert result.status is RunStatus.SUCCESS, result.reason
    assert (result.processes, result.repeats) == (2, 2)
    first_met, other_met = ((folder.repeat(0) / f"met.{node}").read_text().split() for node in (0, 1))
    assert first_met[0] == other_met[0]
    assert (first_met[1], other_met[1]) == (str(tmp_path), str(tmp_path / "second"))
    assert result.environment["other_nodes"] == [OTHER]
    assert [cpu["logical_cores"] for cpu in result.environment["other_nodes_cpu"]] == [psutil.cpu_count()]
    assert [path.name for path in folder.systems()] == ["system.1.jsonl", "system.jsonl"]
    assert [event["status"] for event in folder.events()] == ["running", "success"]
    assert joined.poll() is None


def test_it_waits_for_the_next_run_and_leaves_with_the_first(make, folder: RunFolder, second, dismiss) -> None:
    joined = second()
    for _ in range(2):
        assert run_one(make(), folder).status is RunStatus.SUCCESS
    dismiss()
    assert joined.wait(timeout=HANG_S) == 0


def test_a_failure_on_the_other_machine_ends_both_and_is_told(make, folder: RunFolder, second, processes) -> None:
    joined = second()
    result = run_one(make("second breaks"), folder)
    assert (result.status, result.reason) == (RunStatus.FAILED, "rank 1: ValueError: on the other machine")
    assert [process.pid for process in processes() if process.pid != joined.pid] == []


def test_a_launcher_that_fails_on_the_other_machine_ends_both_and_its_own_exit_code_is_told(
    make, folder: RunFolder, second
) -> None:
    second()
    result = run_one(make("second exits"), folder)
    assert (result.status, result.reason) == (
        RunStatus.FAILED,
        f"the launcher of {OTHER} ended with exit code 3: nothing was printed",
    )


def test_a_machine_that_is_lost_ends_the_run_within_seconds(make, folder: RunFolder, second, processes) -> None:
    joined = second()
    killer = threading.Thread(
        target=lambda: (until((folder.repeat(0) / "met.1").exists), joined.send_signal(signal.SIGKILL))
    )
    killer.start()
    started_s = time.monotonic()
    result = run_one(make("hang"), folder)
    killer.join()
    assert (result.status, result.reason) == (RunStatus.KILLED, f"{OTHER} was lost")
    assert time.monotonic() - started_s < 300, "it has 600 for a silence"
    until(lambda: not processes())


@pytest.mark.parametrize(("held_bytes", "status"), [(2**35, RunStatus.OOM), (0, RunStatus.FAILED)])
def test_memory_that_comes_to_its_end_on_the_other_machine_ends_both(
    make, folder: RunFolder, second, processes, held_bytes: int, status
) -> None:
    joined = second(str(held_bytes))
    result = run_one(make("hang"), folder)
    assert result.status is status
    assert result.reason.startswith(f"{OTHER}: host memory: 0.0 of 16.0 GiB left, the run's processes hold ")
    assert [process.pid for process in processes() if process.pid != joined.pid] == []


@pytest.fixture
def memory_group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Name a control group of 64 MiB for hoard.py.

    There is no test where the kernel kills nobody there, as with swap or without the right to make one.
    """
    group = next(memory.groups(), Path("/dev/null")) / f"llmexp_test_{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    monkeypatch.setenv("MEMORY_GROUP", str(group))
    for limit in (group / name for name, _, _ in memory.VERSIONS):
        if limit.exists():
            limit.write_text(str(2**26))
    killed = (
        subprocess.run([sys.executable, str(HERE / "hoard.py")], stderr=subprocess.DEVNULL).returncode
        == -signal.SIGKILL
    )
    if killed:
        yield
    group.rmdir()
    if not killed:
        pytest.skip("the kernel kills nobody in a memory control group that can be made here")


@pytest.mark.usefixtures("memory_group")
def test_a_kill_by_the_kernel_for_memory_on_the_other_machine_is_out_of_memory(make, folder: RunFolder, second) -> None:
    second()
    result = run_one(make("second hoards"), folder)
    assert (result.status, result.reason) == (
        RunStatus.OOM,
        f"the launcher of {OTHER} was killed by SIGKILL by the kernel because host memory ran out",
    )


def test_a_lost_first_machine_ends_the_others_ranks(make, folder: RunFolder, second, start_driver, processes) -> None:
    joined = second()
    driver = start_driver(make("hang"))
    until((folder.repeat(0) / "met.1").exists)
    driver.kill()
    driver.wait()
    assert joined.wait(timeout=HANG_S) != 0
    assert "node 0 was lost; its ranks here were ended" in joined.stderr.read().decode()
    until(lambda: not processes())
    assert folder.state() == "killed"


def test_a_standstill_is_a_timeout_with_every_machines_stacks(make, folder: RunFolder, second) -> None:
    assert b"waits for node 0" in second().stderr.readline()  # importing it all may take longer than the limit
    result = run_one(make("hang", no_progress_timeout_s=10.0), folder)
    assert result.status is RunStatus.TIMEOUT
    for node in (0, 1):
        assert "node_agent.py" in (folder.repeat(0) / f"log.{node}.txt").read_text()


def test_a_machine_that_does_not_come_is_named(make, folder: RunFolder, port: int) -> None:
    result = run_one(make(no_progress_timeout_s=0.5), folder)
    assert (result.status, result.reason) == (
        RunStatus.FAILED,
        f"node 1 did not connect to 127.0.0.1:{port} within 0.5 s",
    )


def knock(port: int, words: bytes) -> socket.socket | None:
    """Connect and say something; None where nobody is there."""
    stranger = socket.socket()
    if stranger.connect_ex((LOOPBACK, port)):
        stranger.close()
        return None
    stranger.sendall(words)
    return stranger


def test_strangers_at_the_port_keep_nobody_waiting(make, folder: RunFolder, second, port: int) -> None:
    said = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"[1]\n",
        b'{"event": "here", "node": 1}\n',
        b"0" * 32 + b"\n" + b"0" * 64 + b' {"event": "here"}\n',
    ]
    strangers: list[socket.socket | None] = []

    def come() -> None:
        until(lambda: strangers.append(knock(port, said[0])) or strangers[-1])
        strangers.extend(knock(port, words) for words in said * 20)
        second()

    knocking = threading.Thread(target=come)
    knocking.start()
    started_s = time.monotonic()
    assert run_one(make(), folder).status is RunStatus.SUCCESS
    assert time.monotonic() - started_s < 2 * PATIENCE_S
    knocking.join()
    for stranger in filter(None, strangers):
        stranger.close()


def test_nobody_else_can_pose_as_the_first_machine(make, folder: RunFolder, second, port: int, tmp_path: Path) -> None:
    make_secret(folder.path.parent, port)
    plan = make()
    evil = RunFolder(folder.path.parent / "evil")
    evil.write(evil.plan_path, plan)
    order = Start(repeat=str(evil.repeat(0)), stack=stack_digest(plan), address=LOOPBACK, port=port)
    with socket.create_server((LOOPBACK, port)) as server:
        second()
        connection, _ = server.accept()
        posing = Channel(connection, b"a guess")
        for message in (Welcome(), order):
            posing.say(message)
        posing.wait(1.0)
        posing.close()
    assert run_one(plan, folder).status is RunStatus.SUCCESS
    assert list(evil.path.glob("repeat.*")) == []


def test_a_run_outside_of_the_sweep_is_refused(make, folder: RunFolder, second, port: int, tmp_path: Path) -> None:
    secret = make_secret(folder.path.parent, port)
    with socket.create_server((LOOPBACK, port)) as server:
        second()
        first = Channel(server.accept()[0], secret)
        assert isinstance(first.wait(10.0), Here)
        first.say(Welcome())
        first.say(Start(repeat=str(tmp_path / "other" / "run" / "repeat.0"), stack="", address=LOOPBACK, port=port))
        ended = first.wait(10.0)
        first.close()
    assert isinstance(ended, Ended)
    assert ended.reason == f"node 0 asks for a run in {tmp_path / 'other'}, and this is {folder.path.parent}"
