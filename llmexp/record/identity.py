"""The identity of a process, and whether the process still runs.

The kernel that the process runs on answers; for a process on another machine its signs of life do. So a clock that is
set, or a host that is renamed, does not change the answer.
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

from llmexp.machine.processes import is_hidden, is_zombie, kernel, start_ticks, started_at_s
from llmexp.record.heartbeat import is_silent

# The key, in a holder's identity, that promises signs of life; its value is their interval in seconds.
HEARTBEAT = "heartbeat_s"


def process_identity() -> dict[str, Any]:
    """Return what tells this process from a later one with the same process id, and its SLURM job if it has one."""
    return identity_of(os.getpid()) | _slurm_job()


def identity_of(pid: int) -> dict[str, Any]:
    """Return what tells any process that is visible here from a later one with the same process id."""
    told = {"host": socket.gethostname(), "pid": pid, "process_started_at_s": started_at_s(pid)}
    here = kernel()
    return told | (here | {"start_ticks": start_ticks(pid)} if here else {})


def is_alive(identity: Mapping[str, Any], ended_job: str | None = None, held: Path | None = None) -> bool:
    """Tell whether the process of a `process_identity` still runs; a stopped process does.

    The kernel answers for a process that is visible here. For any other the file `held` is used: the process keeps it
    locked if it is hidden, or in another PID namespace of this machine, as in a container. It gives signs of life at
    it if it is on another machine, whatever that machine's name. Processes of earlier versions give no signs of life
    and count as running.

    A process that SLURM has ended does not run: one of the job `ended_job`, or one from before SLURM restarted this
    process's own job.
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
    """Tell whether the identity's process id means the same process here, and the process may be looked at."""
    here = kernel()
    if "boot_id" not in identity or not here:
        return bool(identity.get("host") == socket.gethostname())
    return all(identity.get(name) == here[name] for name in here) and not is_hidden(identity["pid"])


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two identities are of one process, even if its host's name or clock has changed."""
    told = (
        ("boot_id", "pid_namespace", "pid", "start_ticks")
        if "boot_id" in one
        else ("host", "pid", "process_started_at_s")
    )
    return all(one.get(name) == other.get(name) for name in told)


def lock(descriptor: int) -> None:
    """Keep a file locked, as a sign of life for observers that cannot see this process.

    It does nothing on a filesystem without such locks.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def await_unlocked(path: Path) -> None:
    """Sleep in the kernel until nobody keeps the file locked."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def unlock(descriptor: int) -> None:
    """Release the lock on the file."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool | None:
    """Tell whether a process keeps the file locked; None if that is unknown, as on a filesystem without such locks."""
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
    """Tell by the process's start time whether it runs here; older identities have only that."""
    try:
        same = abs(started_at_s(identity["pid"]) - identity["process_started_at_s"]) < 1
        return same and not is_zombie(identity["pid"])
    except (psutil.NoSuchProcess, KeyError):
        return False


def _slurm_job() -> dict[str, Any]:
    """Return the SLURM job of this process, as squeue names it, and its number of restarts; empty outside a job."""
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
