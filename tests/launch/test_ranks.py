"""Ranks that a launcher starts: where they listen, and what happens when one of them or the driver goes.

The other ranks hang in a collective meanwhile.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from marks import slow
from patience import HANG_S, until

from llmexp.launch.ranks import LOOPBACK, Ranks, listening
from llmexp.launch.run import run_one
from llmexp.record.result import RunStatus

pytestmark = pytest.mark.ranks
SCRIPTS = Path(__file__).parent / "scripts"
MEET = ["--master_addr", "{address}", "--master_port", "{port}"]
STARTS = {
    "spawn": ["llmexp.launch.ranks", "2", "{node}", "1", "{address}", "{port}"],
    "torchrun": ["torch.distributed.run", "--nnodes", "1", "--node_rank", "{node}", *MEET, "--nproc_per_node", "2"],
    "deepspeed": ["deepspeed.launcher.runner", "--num_gpus", "2", *MEET, "--no_local_rank"],
}


@pytest.fixture
def make_started_plan(make_plan):
    def make(launcher: str, script: str, *words: str, **limits: float):
        return make_plan(
            argv=[sys.executable, "-m", *STARTS[launcher], str(SCRIPTS / script), "{folder}", *words], **limits
        )

    return make


def reachable(process: psutil.Process) -> set[str]:
    """Addresses on which it waits for others."""
    connections = (
        process.net_connections if hasattr(process, "net_connections") else process.connections
    )  # psutil 6 renamed it
    return {one.laddr.ip for one in connections("tcp") if one.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    ("launcher", "behavior", "status", "reason"),
    [
        ("spawn", "killed", RunStatus.KILLED, "rank 1 was killed by SIGKILL"),
        ("torchrun", "killed", RunStatus.KILLED, "rank 1 was killed by SIGKILL"),
        ("spawn", "out_of_memory", RunStatus.OOM, "rank 1: MemoryError: no more"),
    ],
)
def test_one_ranks_end_ends_the_run_within_seconds(make_started_plan, folder, launcher, behavior, status, reason):
    result = run_one(make_started_plan(launcher, "gloo_rank.py", behavior), folder)
    assert (result.status, result.reason) == (status, reason)
    assert status is not RunStatus.OOM or result.failure.allocator == {"allocated_bytes": 7}
    met = (folder.repeat(0) / "samples.1.jsonl").stat().st_mtime
    assert time.time() - met < 12


@pytest.mark.parametrize("launcher", ["spawn", slow("deepspeed")])
def test_ranks_of_one_node_listen_on_loopback_alone_and_go_with_a_killed_driver(
    make_started_plan, folder, start_driver, processes, launcher
):
    driver = start_driver(make_started_plan(launcher, "gloo_rank.py", "hang"))
    until((folder.repeat(0) / "samples.1.jsonl").exists)
    assert len(processes()) >= 5
    # The store, and each rank's end of Gloo.
    heard = [reachable(process) for process in processes()]
    assert [addresses for addresses in heard if addresses] == [{LOOPBACK}] * 2
    driver.kill()
    driver.wait()
    until(lambda: not processes())
    assert folder.state() == "killed"


@pytest.mark.slow
@pytest.mark.usefixtures("signs_of_life")
def test_a_hang_in_a_collective_is_a_timeout_with_the_stack_of_each_rank_in_its_log(
    make_started_plan, folder, processes
):
    result = run_one(make_started_plan("spawn", "stuck_rank.py", no_progress_timeout_s=5.0), folder)
    assert result.status is RunStatus.TIMEOUT, result.reason
    assert "measure.no_progress_timeout_s=5" in result.reason
    stacks = [(folder.repeat(0) / f"log.{rank}.txt").read_text() for rank in (0, 1)]
    assert "in barrier" in stacks[0]
    assert "in stay_away" in stacks[1]
    assert processes() == []


def test_ranks_of_an_ended_launcher_can_still_write_what_they_know(tmp_path: Path):
    """The launcher passes SIGTERM on, and goes after them; the kernel would end them with it."""
    rank = (
        "import pathlib, signal, sys, time\n"
        "from llmexp.record.process import die_with_parent\n"
        "die_with_parent()\n"
        "def tell(*_):\n"
        "    time.sleep(0.3)\n"
        "    pathlib.Path(sys.argv[1], 'told').touch()\n"
        "    sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, tell)\n"
        "pathlib.Path(sys.argv[1], 'ready').touch()\n"
        "signal.pause()\n"
    )
    (tmp_path / "rank.py").write_text(rank)
    with listening(LOOPBACK, 0) as probe:
        port = str(probe.getsockname()[1])
    start = [sys.executable, "-m", "llmexp.launch.ranks", "1", "0", "1", LOOPBACK, port]
    launcher = subprocess.Popen([*start, str(tmp_path / "rank.py"), str(tmp_path)])
    until((tmp_path / "ready").exists)
    launcher.terminate()
    assert launcher.wait(timeout=HANG_S) == 5
    assert (tmp_path / "told").exists()


def test_of_ranks_that_ended_together_the_killed_one_answers(capfd):
    """The first has lost its connection to the second, and ended before anybody looked."""
    programs = ["raise SystemExit(1)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "input()"]
    held, end = os.pipe()
    files = [(os.POSIX_SPAWN_DUP2, held, 0)]
    started = []

    def start(number: int) -> int:
        argv = [sys.executable, "-c", programs[number]]
        started.append(os.posix_spawn(sys.executable, argv, os.environ, file_actions=files))
        return started[-1]

    ranks = Ranks(start, 3)
    for pid in started[:2]:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ranks.poll() == -signal.SIGKILL
    assert capfd.readouterr().out == "rank 0 ended with exit code 1\nrank 1 ended with exit code -9\n"
    os.write(end, b"\n")
    os.waitid(os.P_PID, started[2], os.WEXITED | os.WNOWAIT)
    assert ranks.poll() == 0
    os.close(held)
    os.close(end)


def test_nodes_meet_on_the_address_that_they_are_told_and_no_other(tmp_path: Path, processes):
    address = "127.0.0.2"
    with listening(address, 0) as probe:
        port = str(probe.getsockname()[1])
    start = [sys.executable, "-m", "llmexp.launch.ranks", "1"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    nodes = [
        subprocess.Popen(
            [*start, node, "2", address, port, str(SCRIPTS / "gloo_rank.py"), str(tmp_path), "killed"], env=env
        )
        for node in ("0", "1")
    ]
    until(lambda: any(address in reachable(process) for process in processes()))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, int(port)))
    assert nodes[1].wait(timeout=HANG_S) == 128 + 9
    nodes[0].terminate()
    nodes[0].wait()
    until(lambda: not processes())
    assert {path.name for path in tmp_path.glob("samples.*")} == {"samples.0.jsonl", "samples.1.jsonl"}


def test_a_port_that_somebody_took_is_the_runs_reason(make_started_plan, folder):
    plan = make_started_plan("spawn", "gloo_rank.py", "hang")
    with listening(LOOPBACK, 0) as taken:
        words = [word.replace("{port}", str(taken.getsockname()[1])) for word in plan.command.argv]
        result = run_one(plan.model_copy(update={"command": plan.command.model_copy(update={"argv": words})}), folder)
    assert (result.status, "Address already in use" in result.reason) == (RunStatus.FAILED, True), result.reason
