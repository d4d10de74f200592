"""Which process is meant, and whether it still runs: told by the kernel alone, so that neither a clock that is set nor a new host name changes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# Of /proc/<pid>/stat after the name in brackets, which may hold blanks: field 22, in clock ticks since the machine started.
_START_TICKS = 19


def process_identity() -> dict[str, Any]:
    """What tells this process from any other, later one with its number; with its SLURM job, where it is of one."""
    return identity_of(os.getpid()) | _slurm_job()


def identity_of(pid: int) -> dict[str, Any]:
    """The same of any process that is visible here."""
    told = {"host": socket.gethostname(), "pid": pid, "process_started_at_s": psutil.Process(pid).create_time()}
    kernel = _kernel()
    return told | (kernel | {"start_ticks": _start_ticks(pid)} if kernel else {})


def is_alive(identity: Mapping[str, Any], ended_job: str | None = None, held: Path | None = None) -> bool:
    """Whether the process of a `process_identity` still runs; one of another machine, which cannot be seen, counts as running.

    But not one that SLURM has ended: with the job `ended_job`, or before it started this process's own job once more. A process in another
    PID namespace, as a container has, is asked for by the lock that it keeps on the file `held`; without one it counts as running.
    """
    here, same_host = _kernel(), identity.get("host") == socket.gethostname()
    if "boot_id" not in identity or not here:
        return _is_here(identity) if same_host else not _ended_by_slurm(identity, ended_job)
    if identity["boot_id"] != here["boot_id"]:
        return not same_host and not _ended_by_slurm(identity, ended_job)  # of this name: before the machine started anew
    if identity["pid_namespace"] != here["pid_namespace"]:
        return held is None or is_locked(held)
    return _start_ticks(identity["pid"]) == identity["start_ticks"] and not _is_zombie(identity["pid"])


def is_visible(identity: Mapping[str, Any]) -> bool:
    """Whether the number of the process means the same here."""
    here = _kernel()
    if "boot_id" not in identity or not here:
        return bool(identity.get("host") == socket.gethostname())
    return all(identity[name] == here[name] for name in here)


def lock(descriptor: int) -> None:
    """Keep a file locked, as a sign of life for those who cannot see this process; nothing where the filesystem knows no such locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def await_unlocked(path: Path) -> None:
    """Sleep in the kernel until nobody keeps the file locked."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def is_locked(path: Path) -> bool:
    """Whether somebody keeps the file locked; where that cannot be told, as if so."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _kernel() -> dict[str, Any]:
    """This boot of this machine, and the namespace that process numbers are of; empty where the kernel does not tell (not Linux)."""
    try:
        return {"boot_id": _BOOT.read_text().strip(), "pid_namespace": os.stat("/proc/self/ns/pid").st_ino}
    except OSError:
        return {}


def _start_ticks(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_START_TICKS])
    except (OSError, IndexError):
        return None


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _is_here(identity: Mapping[str, Any]) -> bool:
    """By the clock, which older identities go by."""
    try:
        same = abs(psutil.Process(identity["pid"]).create_time() - identity["process_started_at_s"]) < 1
        return same and not _is_zombie(identity["pid"])
    except (psutil.NoSuchProcess, KeyError):
        return False


def _slurm_job() -> dict[str, Any]:
    """The SLURM job of this process, by the name that squeue has for it, and how often SLURM started it again; nothing outside of one."""
    own = os.environ.get
    job = f"{own('SLURM_ARRAY_JOB_ID')}_{own('SLURM_ARRAY_TASK_ID')}" if own("SLURM_ARRAY_JOB_ID") else own("SLURM_JOB_ID")
    return {"slurm_job": job, "slurm_restarts": int(own("SLURM_RESTART_COUNT", "0"))} if job else {}


def _ended_by_slurm(identity: Mapping[str, Any], ended_job: str | None) -> bool:
    job, own = identity.get("slurm_job"), _slurm_job()
    if job is None:
        return False
    return bool(job == ended_job or (job == own.get("slurm_job") and identity["slurm_restarts"] < own["slurm_restarts"]))
