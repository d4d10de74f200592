"""Which process is meant, and whether it still runs: told by the kernel that it runs on, by its signs of life where that is another machine's.

So neither a clock that is set nor a host's name changes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from llmexp.machine.processes import is_zombie, kernel, start_ticks, started_at_s
from llmexp.record.heartbeat import is_silent

# The name, in a holder's identity, that promises signs of life; its value is every how many seconds.
HEARTBEAT = "heartbeat_s"


def process_identity() -> dict[str, Any]:
    """What tells this process from any other, later one with its number; with its SLURM job, where it is of one."""
    return identity_of(os.getpid()) | _slurm_job()


def identity_of(pid: int) -> dict[str, Any]:
    """The same of any process that is visible here."""
    told = {"host": socket.gethostname(), "pid": pid, "process_started_at_s": started_at_s(pid)}
    here = kernel()
    return told | (here | {"start_ticks": start_ticks(pid)} if here else {})


def is_alive(identity: Mapping[str, Any], ended_job: str | None = None, held: Path | None = None) -> bool:
    """Whether the process of a `process_identity` still runs: by the kernel where it can be seen from here, a stopped one too.

    One that cannot be seen is asked for by the file `held`: in another PID namespace of this machine, as a container has, by the lock that it keeps
    there; on another machine, whatever that is called, by its signs of life; an earlier version gave none, and counts as running. But not one that
    SLURM has ended: with the job `ended_job`, or before it started this process's own job once more.
    """
    if is_visible(identity):
        return _runs(identity)
    if held and _is_of_this_boot(identity) and (locked := is_locked(held)) is not None:
        return locked
    if _ended_by_slurm(identity, ended_job):
        return False
    if held and HEARTBEAT in identity:
        return not is_silent(held)
    may_be_earlier = "boot_id" in identity and not _is_of_this_boot(identity)
    return not (may_be_earlier and identity.get("host") == socket.gethostname())


def is_visible(identity: Mapping[str, Any]) -> bool:
    """Whether the number of the process means the same here."""
    here = kernel()
    if "boot_id" not in identity or not here:
        return bool(identity.get("host") == socket.gethostname())
    return all(identity.get(name) == here[name] for name in here)


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two identities are of one process, whatever became of its host's name and clock."""
    told = (
        ("boot_id", "pid_namespace", "pid", "start_ticks")
        if "boot_id" in one
        else ("host", "pid", "process_started_at_s")
    )
    return all(one.get(name) == other.get(name) for name in told)


def lock(descriptor: int) -> None:
    """Keep a file locked, as a sign of life for those who cannot see this process; nothing where the filesystem knows no such locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def await_unlocked(path: Path) -> None:
    """Sleep in the kernel until nobody keeps the file locked."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def unlock(descriptor: int) -> None:
    """Keep it locked no longer."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool | None:
    """Whether somebody keeps the file locked; None where that cannot be told, as on a filesystem without such locks."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None


def _is_of_this_boot(identity: Mapping[str, Any]) -> bool:
    return "boot_id" in identity and identity["boot_id"] == kernel().get("boot_id")


def _runs(identity: Mapping[str, Any]) -> bool:
    if "boot_id" not in identity or not kernel():
        return _is_here(identity)
    return start_ticks(identity["pid"]) == identity["start_ticks"] and not is_zombie(identity["pid"])


def _is_here(identity: Mapping[str, Any]) -> bool:
    """By the clock, which older identities go by."""
    try:
        same = abs(started_at_s(identity["pid"]) - identity["process_started_at_s"]) < 1
        return same and not is_zombie(identity["pid"])
    except (psutil.NoSuchProcess, KeyError):
        return False


def _slurm_job() -> dict[str, Any]:
    """The SLURM job of this process, by the name that squeue has for it, and how often SLURM started it again; nothing outside of one."""
    own = os.environ.get
    job = (
        f"{own('SLURM_ARRAY_JOB_ID')}_{own('SLURM_ARRAY_TASK_ID')}"
        if own("SLURM_ARRAY_JOB_ID")
        else own("SLURM_JOB_ID")
    )
    return {"slurm_job": job, "slurm_restarts": int(own("SLURM_RESTART_COUNT", "0"))} if job else {}


def _ended_by_slurm(identity: Mapping[str, Any], ended_job: str | None) -> bool:
    job, own = identity.get("slurm_job"), _slurm_job()
    if job is None:
        return False
    return bool(
        job == ended_job or (job == own.get("slurm_job") and identity["slurm_restarts"] < own["slurm_restarts"])
    )
