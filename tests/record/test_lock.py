from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmexp.record import lock as module
from llmexp.record.lock import LockHeldError, acquire, acquire_waiting, who_holds

RACER = """
import sys
from pathlib import Path
from llmexp.record.lock import LockHeldError, acquire
print("ready", flush=True)
sys.stdin.readline()
try:
    with acquire(Path(sys.argv[1])):
        print("won", flush=True)
        sys.stdin.readline()
except LockHeldError:
    print("lost", flush=True)
"""
RACERS, ROUNDS = 6, 5


@contextmanager
def racers(lock: Path, number: int) -> Iterator[list[subprocess.Popen[str]]]:
    with ExitStack() as stack:
        command = [sys.executable, "-c", RACER, str(lock)]
        started = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(number)
        ]
        stack.callback(lambda: [process.kill() for process in started])
        for process in started:
            assert said(process) == "ready"
        yield started


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def test_of_many_processes_at_once_one_holds_it_also_after_holders_that_were_killed(tmp_path: Path) -> None:
    for _ in range(ROUNDS):
        with racers(tmp_path / "lock", RACERS) as started:
            for process in started:
                go(process)
            words = [said(process) for process in started]
            assert sorted(words) == ["lost"] * (RACERS - 1) + ["won"]
            started[words.index("won")].send_signal(signal.SIGKILL)


def test_two_that_saw_the_same_dead_holder_do_not_both_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    with acquire(lock):
        pass
    look, outdated = module._newest, [module._newest(lock, None)]
    with acquire(lock):
        monkeypatch.setattr(module, "_newest", lambda *given: outdated.pop() if outdated else look(*given))
        with pytest.raises(LockHeldError), acquire(lock):
            pass
    assert outdated == []


def test_it_is_free_after_its_holder_and_not_before(tmp_path: Path) -> None:
    for _ in range(2):
        with (
            acquire(tmp_path / "lock"),
            pytest.raises(LockHeldError, match=f"process {os.getpid()} on "),
            acquire(tmp_path / "lock"),
        ):
            pass


def test_a_holder_on_another_host_counts_as_alive_and_the_remedy_is_named(tmp_path: Path) -> None:
    with acquire(tmp_path / "lock"):
        (holder,) = (tmp_path / "lock").glob(f"*/{module.HOLDER}")
        text = json.dumps(json.loads(holder.read_text()) | {"host": "another-host", "boot_id": "another", "pid": 1})
    holder.write_text(text)
    words = rf"process 1 on another-host, since .* if you are sure that it is dead: rm -r '{tmp_path / 'lock'}'"
    with pytest.raises(LockHeldError, match=words), acquire(tmp_path / "lock"):
        pass


def test_flock_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    for name in ("flock", "lockf", "fcntl"):
        monkeypatch.setattr(fcntl, name, refuse)
    with acquire(tmp_path / "lock"), pytest.raises(LockHeldError), acquire(tmp_path / "lock"):
        pass


def test_waiting_is_said_once_and_ends_with_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    with racers(tmp_path / "lock", 1) as (holder,):
        go(holder)
        assert said(holder) == "won"
        # time.sleep itself is everybody's: a thread that an earlier test has left behind would end the holder with it.
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: (holder.kill(), holder.wait())))
        time.sleep(0)  # as that thread would
        with acquire_waiting(tmp_path / "lock", lambda: waits.append("waiting")):
            assert waits == ["waiting"]
        with acquire_waiting(tmp_path / "lock", lambda: waits.append("again")):
            assert waits == ["waiting"]


def elsewhere(lock: Path, job: str, restarts: int = 0) -> None:
    """Let a process on another host have the lock, as one of a node that is gone would."""
    (lock / "1").mkdir(parents=True)
    identity = {
        "host": "n1.elsewhere",
        "pid": 1,
        "process_started_at_s": 1.0,
        "at": "then",
        "slurm_job": job,
        "slurm_restarts": restarts,
    }
    (lock / "1" / module.HOLDER).write_text(json.dumps(identity))


def newest_holder(lock: Path) -> int:
    """The process that the newest number names."""
    newest = max((path for path in lock.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return int(json.loads((newest / module.HOLDER).read_text())["pid"])


def test_a_job_that_slurm_started_again_follows_itself(tmp_path, monkeypatch):
    elsewhere(tmp_path / "lock", "7_1")
    for name, value in {
        "SLURM_JOB_ID": "9",
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "1",
        "SLURM_RESTART_COUNT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with acquire(tmp_path / "lock"):
        assert newest_holder(tmp_path / "lock") == os.getpid()


@pytest.mark.parametrize(("job", "ended"), [("7_1", None), ("7_1", "7_2"), ("8", "7")])
def test_any_other_job_elsewhere_holds(job, ended, tmp_path):
    elsewhere(tmp_path / "lock", job)
    with pytest.raises(LockHeldError), acquire(tmp_path / "lock", ended_job=ended):
        pass


def test_a_job_that_has_ended_holds_nothing(tmp_path):
    elsewhere(tmp_path / "lock", "7_1")
    with acquire(tmp_path / "lock", ended_job="7_1"):
        assert newest_holder(tmp_path / "lock") == os.getpid()


def test_what_could_not_be_released_is_free_to_this_process_and_released_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, length: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    lock, truncate = tmp_path / "lock", os.truncate
    monkeypatch.setattr(os, "truncate", refuse)
    with acquire(lock):
        pass
    (holder,) = lock.glob(f"*/{module.HOLDER}")
    assert holder.read_text()
    assert who_holds(lock) is None
    monkeypatch.setattr(os, "truncate", truncate)
    with acquire(lock):
        assert holder.read_text() == ""
