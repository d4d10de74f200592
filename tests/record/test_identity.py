"""The question whether a process runs, asked from where it is and from where it cannot be seen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from llmexp.record.folder import RunFolder
from llmexp.record.heartbeat import SILENT_S
from llmexp.record.identity import await_unlocked, identity_of, is_alive, is_visible, process_identity
from llmexp.record.lock import acquire, holder_file, who_holds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="boots and namespaces are told by Linux alone")
HOST = socket.gethostname()
HOLDING = """
import signal
import sys
from pathlib import Path
from llmexp.launch.attempt import RunLostError, check_still_mine
from llmexp.record.folder import RunFolder
from llmexp.record.identity import process_identity
from llmexp.record.lock import acquire
folder = RunFolder(Path(sys.argv[1]))
with acquire(folder.drivers):
    folder.event("running", **process_identity())
    print("holds", flush=True)
    sys.stdin.readline() or signal.pause()  # what is killed must not end by itself, as its input does
    try:
        check_still_mine(folder)
    except RunLostError as error:
        print(error, flush=True)
"""
LOOKING = "import sys; from llmexp.record.folder import RunFolder; print(RunFolder(sys.argv[1]).state())"


@contextmanager
def holding(folder: RunFolder, start: list[str]) -> Iterator[subprocess.Popen[str]]:
    command = [*start, sys.executable, "-c", HOLDING, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        try:
            assert holder.stdout.readline() == "holds\n"
            yield holder
        finally:
            holder.kill()


def test_a_clock_that_is_set_and_a_new_host_name_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = process_identity() | {"process_started_at_s": 0.0}
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    assert is_alive(identity)
    assert is_visible(identity)
    assert not is_alive(identity | {"start_ticks": identity["start_ticks"] - 1})


def test_before_the_machine_started_anew_nothing_lives_and_of_another_machine_nothing_is_known() -> None:
    assert not is_alive(process_identity() | {"boot_id": "earlier"})
    assert is_alive(process_identity() | {"boot_id": "another's", "host": "another"})


def test_a_process_that_has_ended_is_not_alive() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        identity = identity_of(process.pid)
        assert is_alive(identity)
        process.kill()
    assert not is_alive(identity)


def test_a_run_in_another_pid_namespace_is_running_until_it_is_killed(tmp_path: Path, namespace: list[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    with holding(folder, namespace):
        assert folder.events()[0]["pid"] != os.getpid()
        assert folder.state() == "running"
        assert who_holds(folder.drivers)
    holder = holder_file(folder.drivers)
    assert holder
    await_unlocked(holder)  # the namespace ends with unshare, but after it
    assert folder.state() == "killed"
    with acquire(folder.drivers):
        pass


def test_a_run_is_seen_from_another_pid_namespace(tmp_path: Path, namespace: list[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    look = [*namespace, sys.executable, "-c", LOOKING, str(folder.path)]
    with holding(folder, []):
        assert subprocess.check_output(look, text=True) == "running\n"
    assert subprocess.check_output(look, text=True) == "killed\n"


def test_a_run_of_another_user_is_seen_where_no_process_of_others_may_be_looked_at(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    nobody = "--reuid 65534 --regid 65534 --clear-groups"
    unprivileged = f"{nobody} --inh-caps +dac_override --ambient-caps +dac_override"  # it still reads the folder
    hidden = f'mount -t proc -o hidepid=2 proc /proc && exec setpriv {unprivileged} "$@"'
    start = ["unshare", "--mount", "sh", "-c", hidden, "sh"]
    if subprocess.run([*start, "true"], capture_output=True).returncode:
        pytest.skip("processes cannot be hidden here")
    look = [*start, sys.executable, "-c", LOOKING, str(folder.path)]
    with holding(folder, []):
        assert subprocess.check_output(look, text=True) == "running\n"
    assert subprocess.check_output(look, text=True) == "killed\n"


@pytest.fixture
def other_machine(tmp_path: Path, namespace: list[str]) -> list[str]:
    """What starts a process on what it takes for another machine: another boot, PID namespace and host name."""
    boot, named = (
        tmp_path / "boot_id",
        'mount --bind {boot} /proc/sys/kernel/random/boot_id && hostname elsewhere && exec "$@"',
    )
    boot.write_text("11111111-2222-3333-4444-555555555555\n")
    start = [*namespace, "--mount", "--uts", "sh", "-c", named.format(boot=boot), "sh"]
    if subprocess.run([*start, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    return start


def test_a_run_on_another_machine_is_running_until_it_has_been_silent_for_long(
    tmp_path: Path, other_machine: list[str]
) -> None:
    folder = RunFolder(tmp_path / "run")
    look = [*other_machine, sys.executable, "-c", LOOKING, str(folder.path)]
    with holding(folder, other_machine):
        assert (folder.events()[0]["host"], folder.state()) == ("elsewhere", "running")
    last = holder_file(folder.drivers)
    assert last
    await_unlocked(last)
    assert folder.state() == "running"
    os.utime(last, (last.stat().st_mtime - 2 * SILENT_S,) * 2)
    assert folder.state() == "killed"
    with acquire(folder.drivers):
        folder.event("running", **process_identity())
        assert subprocess.check_output(look, text=True) == "running\n"


def test_a_driver_that_stood_still_while_another_took_its_run_learns_it(
    tmp_path: Path, other_machine: list[str]
) -> None:
    folder = RunFolder(tmp_path / "run")
    with holding(folder, other_machine) as holder:
        inside = psutil.Process(holder.pid).children(recursive=True)[-1]
        inside.suspend()
        last = holder_file(folder.drivers)
        assert last
        os.utime(last, (last.stat().st_mtime - 2 * SILENT_S,) * 2)
        with acquire(folder.drivers):
            inside.resume()
            out, _ = holder.communicate("\n")
    assert (
        out == "another llmexp has taken over this run, because this one showed no sign of life for 10 min or more: "
        f"process {os.getpid()} on {HOST}\n"
    )
