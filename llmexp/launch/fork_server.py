"""The server for engine.launcher=fork: it has imported an engine's worker and forks the ranks of each repeat.

As a server, `python -m llmexp.launch.fork_server <worker>`: its standard input is a socket, each message is an order,
and the server ends when the socket closes.
By hand, `python -m llmexp.launch.fork_server <worker> <ranks> <port> <folder>`: it forks the ranks of one repeat.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from llmexp.launch.ranks import LOOPBACK, Ranks, listening, variables
from llmexp.launch.supervisor import hold
from llmexp.record.process import die_with_parent

# The module that turns a forked process into a rank; it imports torch.
STARTER = "llmexp.launchers.rank.forked"
MESSAGE_BYTES = 65536


def serve(worker: str) -> None:
    """Import the worker, then fork a supervisor for each order until the driver goes."""
    importlib.import_module(STARTER).prepare(worker)
    signal.signal(signal.SIGCHLD, _reap)
    orders = socket.socket(fileno=os.dup(0))
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, MESSAGE_BYTES, 2)
        if not message:
            return
        if os.fork() == 0:
            orders.close()
            _keep([worker, *message.decode().split("\0")], *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _reap(*_: object) -> None:
    """Wait for ended supervisors, so that their CPU time counts as this run's own and not as another program's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(words: Sequence[str], line: int, log: int) -> None:
    """Hold one repeat's ranks until they or the driver end, send the exit code over the line and exit.

    The code is 1 where they could not be started.
    """
    die_with_parent()
    os.setsid()
    for source, target in ((line, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        code = hold(lambda: forked(*words).poll)
    except Exception:
        traceback.print_exc()
        code = 1
    with suppress(OSError), socket.socket(fileno=0) as driver:
        driver.sendall(str(code).encode())
    os._exit(0)


def forked(worker: str, ranks: str, port: str, folder: str) -> Ranks:
    """Fork the ranks of one repeat."""
    start: Callable[[str, str], None] = importlib.import_module(STARTER).run
    os.environ.update(MASTER_ADDR=LOOPBACK, MASTER_PORT=port)
    store = listening(LOOPBACK, int(port))

    def fork(number: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        os.environ.update(variables(number, int(ranks), store))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for signalled in (signal.SIGCHLD, signal.SIGUSR2):
            signal.signal(signalled, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        try:
            start(worker, folder)
        except Exception:
            # Here, or this rank would answer in its supervisor's place.
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    return Ranks(fork, int(ranks), store=store)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        importlib.import_module(STARTER).prepare(sys.argv[1])
        sys.exit(hold(lambda: forked(*sys.argv[1:]).poll))
