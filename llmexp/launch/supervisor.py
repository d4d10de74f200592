"""The process between the driver and the ranks: when either side goes, it leaves no process of the other behind.

The driver may be SIGKILLed, launchers start ranks in sessions of their own, and ranks start processes too. The
supervisor adopts them all and waits for two things without polling: the launcher's end, and the end of its own standard
input, which only the driver holds open. It is started as `python -m llmexp.launch.supervisor <ending command, one word>
<command…>`. The ending command, where there is one, ends processes that are not descendants. It runs before the start
too, because a supervisor that was killed could not run it.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import psutil

from llmexp.record.process import adopt_orphans, die_with_parent

GRACE_S = 5.0
# A process that the kernel cannot end (stuck in a driver call) must not hold the driver for ever.
PATIENCE_S = 30.0
SIGNALLED = 128


def keep(argv: Sequence[str], ending: Sequence[str] = ()) -> int:
    """Run the command until it ends or the driver goes; return its exit code, 128 + n where signal n ended it."""

    def start() -> Callable[[], int | None]:
        # preexec_fn is safe here: this process has no threads.
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent).poll

    _end_elsewhere(ending)
    code = hold(start)
    _end_elsewhere(ending)
    return code


def hold(start: Callable[[], Callable[[], int | None]]) -> int:
    """Start children, wait until they end or the driver goes, then end those that are left; return as `keep` does.

    The function that `start` returns is called whenever a child has ended. It gives None as long as the others run,
    else the exit code, -n where signal n ended it.
    """
    adopt_orphans()
    children = _child_signals()
    # The command ignores it too: SLURM sends its warning to every process, and the driver answers it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    poll = start()
    while (code := poll()) is None:
        ready, _, _ = select.select([0, children], [], [])
        if 0 in ready:
            break
        os.read(children, 4096)
    sweep()
    return SIGNALLED + signal.SIGTERM if code is None else SIGNALLED - code if code < 0 else code


def _end_elsewhere(ending: Sequence[str]) -> None:
    if not ending:
        return
    try:
        subprocess.run(
            ending,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"llmexp: {shlex.join(ending)} does not end", file=sys.stderr, flush=True)


def sweep() -> None:
    """End every descendant: ask, wait for a grace period, then kill until none is left."""
    me = psutil.Process()
    _signal_all(me, signal.SIGTERM)
    psutil.wait_procs(me.children(recursive=True), timeout=GRACE_S)
    deadline = time.monotonic() + PATIENCE_S
    while (left := me.children(recursive=True)) and time.monotonic() < deadline:
        _signal_all(me, signal.SIGKILL)
        psutil.wait_procs(left, timeout=1.0)
    for process in left:
        print(f"llmexp: process {process.pid} cannot be killed", file=sys.stderr)


def _signal_all(parent: psutil.Process, number: signal.Signals) -> None:
    for process in parent.children(recursive=True):
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _child_signals() -> int:
    """Return a file descriptor that becomes readable whenever a child ends."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write)
    return read


if __name__ == "__main__":
    sys.exit(keep(sys.argv[2:], shlex.split(sys.argv[1])))
