"""A lock between drivers that works on every filesystem, also on NFS without flock.

The lock is a series of numbered folders, each of which names the process that holds or held it. A process takes the
lock by creating the next number, with a rename that fails where another process was faster. Only the newest number
counts, and no number is created twice, so two processes that both find a dead holder cannot both follow it.

A killed holder is recognized by its process, or on another machine by its signs of life, which stop. A holder that
stood still for that long, as on a suspended laptop, asks `lost_to` before it writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmexp.record.duration import duration
from llmexp.record.heartbeat import EVERY_S, SILENT_S, beating, touch
from llmexp.record.identity import HEARTBEAT, await_unlocked, is_alive, is_locked, is_visible, process_identity, unlock
from llmexp.record.identity import lock as keep_locked
from llmexp.record.reading import read_json
from llmexp.record.writing import now

HOLDER = ".holder"
_TRY_EVERY_S = 0.5
_LONGEST_BYTES = 65_536
# Locks that this process no longer holds but could not mark as released: they are free for this process, and for others
# at the latest when this process ends.
_to_release: set[Path] = set()
# Open files of the locks that this process holds, or could not release; those that it holds are locked.
_open: dict[Path, int] = {}


class LockHeldError(Exception):
    """The error that another process has the lock; it says which one, and what to do where that is certainly dead."""

    def __init__(self, lock: Path, holder: dict[str, Any]) -> None:
        self.holder = holder
        alone = HEARTBEAT in holder and not is_visible(holder)
        late = f"; after {duration(SILENT_S)} without a sign of life it counts as dead" if alone else ""
        super().__init__(
            f"{_name(holder)}, since {holder.get('at')}; wait for it or end it; "
            f"if you are sure that it is dead: rm -r '{lock}'{late}"
        )


def living_holder(lock: Path) -> dict[str, Any] | None:
    """Return the identity of the process that has the lock; None where it is free."""
    held = _why_not(lock)
    return held.holder if held else None


def lost_to(lock: Path, asking: bool = False) -> str | None:
    """Name the process that took the lock from this one, which it found silent for too long.

    Return None where no process did, or this one never had the lock. `asking` makes sure that the answer is up to date,
    at the cost of some messages to the file server.
    """
    for holder in [holder for holder in _open if holder.parent.parent == lock and holder not in _to_release]:
        with contextlib.suppress(OSError):
            if asking:
                _ask_again(lock, _open[holder])
            newest = holder_file(lock)
            if newest and not (newest == holder and (not asking or _is_open(holder))):
                return _taker(newest)
    return None


def who_holds(lock: Path) -> str | None:
    """Say who has the lock, since when, and what to do where that process is certainly dead; None where it is free."""
    held = _why_not(lock)
    return str(held) if held else None


@contextmanager
def acquire(lock: Path, ended_job: str | None = None) -> Iterator[None]:
    """Hold the lock, a folder of its own, as long as the block lasts.

    Raises LockHeldError at once where another living process has it, OSError where the folder cannot be made.
    `ended_job` is a SLURM job whose processes are known to be dead on all hosts.
    """
    holder = _take(lock, ended_job)
    try:
        with beating(_open[holder]):
            yield
    finally:
        _release(holder)


@contextmanager
def acquire_waiting(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock as soon as it is free; `waiting` is called once where it is not free at first."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(acquire(lock))
        except LockHeldError:
            waiting()
            _wait_for(lock, stack)
        yield


def _wait_for(lock: Path, stack: contextlib.ExitStack) -> None:
    while True:
        time.sleep(_TRY_EVERY_S)
        with contextlib.suppress(LockHeldError):
            return stack.enter_context(acquire(lock))


def _take(lock: Path, ended_job: str | None) -> Path:
    lock.mkdir(parents=True, exist_ok=True)
    mine = lock / f".{uuid.uuid4().hex}"
    me = json.dumps({"at": now(), **process_identity(), HEARTBEAT: EVERY_S, "attempt": mine.name})
    _release_all()
    signs = -1
    try:
        mine.mkdir()
        signs = os.open(mine / HOLDER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        os.write(signs, me.encode())
        os.fsync(signs)  # without this, another host of an NFS server may find it empty, as if released
        keep_locked(signs)
        while True:
            place = lock / str(_newest(lock, ended_job) + 1)
            try:
                mine.rename(place)
            except OSError:
                if not place.exists():
                    raise
                if (place / HOLDER).read_text() != me:  # NFS may answer twice, and report failure the second time
                    continue
            _open[place / HOLDER], signs = signs, -1
            return place / HOLDER
    finally:
        if signs >= 0:
            os.close(signs)
        shutil.rmtree(mine, ignore_errors=True)


def _why_not(lock: Path) -> LockHeldError | None:
    """Return the error that says why the lock cannot be taken; None where it can."""
    try:
        _newest(lock)
    except LockHeldError as error:
        return error
    except FileNotFoundError:
        return None
    return None


def _newest(lock: Path, ended_job: str | None = None) -> int:
    """Return the number of the last holder, 0 before the first.

    Raises LockHeldError where that holder lives and has not released the lock.
    """
    file = holder_file(lock)
    holder = _said(file) if file and file not in _to_release else {}
    if holder and is_alive(holder, ended_job, file):
        raise LockHeldError(lock, holder)
    return int(file.parent.name) if file else 0


def _said(holder: Path) -> dict[str, Any]:
    """Read a holder's identity; empty where it has released the lock, or the file is not a holder's."""
    try:
        said = read_json(holder)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def holder_file(lock: Path) -> Path | None:
    """Return the newest holder's file, with its identity, locked while the holder lives; None where there was none."""
    numbers = [int(path.name) for path in lock.iterdir() if path.name.isdecimal()] if lock.exists() else []
    return lock / str(max(numbers)) / HOLDER if numbers else None


def end_with_holder(lock: Path) -> None:
    """End this process when the present holder ends, even if the holder is not its parent.

    This is needed in containers, whose daemon does not see that its client has ended.
    """
    holder = holder_file(lock)
    if holder is None or not is_locked(holder):
        return

    def watch() -> None:
        await_unlocked(holder)
        print("llmexp: the driver of this run is gone", file=sys.stderr, flush=True)
        os._exit(1)

    threading.Thread(target=watch, name="holder", daemon=True).start()


def _is_open(holder: Path) -> bool:
    """Tell whether the file of that name is this process's own.

    Somebody may have removed the folder, and then the numbers start again.
    """
    return holder.read_bytes() == os.pread(_open[holder], _LONGEST_BYTES, 0)


def _taker(holder: Path) -> str:
    try:
        said = _said(holder)
    except OSError as error:
        return f"the one of {holder}, which cannot be read: {error.strerror}"
    return _name(said) if said else "a process that has ended by now"


def _ask_again(lock: Path, descriptor: int) -> None:
    """Give a sign of life, then change the folder, so that NFS does not answer from its cache."""
    touch(descriptor)
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=lock):
        pass


def _name(holder: dict[str, Any]) -> str:
    return f"process {holder.get('pid')} on {holder.get('host')}"


def _release(holder: Path) -> None:
    """Release the lock by emptying the holder's file, which works even on a full disk.

    Where that fails, as on a disk that has become read-only, it is tried again later.
    """
    _to_release.add(holder)
    _release_all()


def _release_all() -> None:
    """Release all locks that are to be released.

    It uses the open files, not their names: somebody may have removed the folder, and the names may then be another's.
    """
    for holder in list(_to_release):
        unlock(_open[holder])
        try:
            os.truncate(_open[holder], 0)
        except OSError:
            continue
        os.close(_open.pop(holder))
        _to_release.discard(holder)
