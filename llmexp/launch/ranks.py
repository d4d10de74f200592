"""One node's ranks: the variables by which they find each other, their store, and the first bad end among them.

`python -m llmexp.launch.ranks <ranks> <node> <nodes> <address> <port> <words…>` starts fresh interpreters of
`python <words…>`, one per rank. Unlike torchrun's agent it does not import torch, which takes seconds. It has no
rendezvous either: torchrun's default one unpickles its state from anybody who can reach it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType

from llmexp.launch.supervisor import SIGNALLED
from llmexp.record.process import STORE_FD

LOOPBACK = "127.0.0.1"
# Signals that Python ignores and would pass on as ignored.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


class Ranks:
    """Processes that `start` makes at construction, from their numbers on node `node` to process ids, and how they end.

    The first rank of node 0 serves the store in which all ranks find each other, on the socket `store`. The socket is
    closed here once that rank has it.
    """

    def __init__(
        self, start: Callable[[int], int], ranks: int, node: int = 0, store: socket.socket | None = None
    ) -> None:
        self._left = {}
        for number in range(ranks):
            self._left[start(number)] = node * ranks + number
            if store:
                store.close()

    def poll(self) -> int | None:
        """Return 0 once all have ended well, None as long as they run.

        Otherwise return the exit code of one that has not, -n where signal n ended it. Of several, one that a signal
        ended comes first: the others may have lost their connection to it.
        """
        codes = [code for pid in list(self._left) if (code := self._ended(pid))]
        return min(codes, default=None if self._left else 0)

    def _ended(self, pid: int) -> int:
        """Return a rank's exit code, 0 as long as it runs too."""
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return 0
        rank = self._left.pop(pid)
        if code := os.waitstatus_to_exitcode(status):
            print(f"rank {rank} ended with exit code {code}", flush=True)
        return code

    def pass_on(self, number: int, frame: FrameType | None = None) -> None:
        """Send all that run a signal, as a handler of it: they end by it, or first write what they still can."""
        for pid in self._left:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait(self) -> int:
        """Block until `poll` has an answer."""
        while (code := self.poll()) is None:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        return code


def listening(address: str, port: int) -> socket.socket:
    """Return the store's socket, which listens on this address only; torch's own would listen on every interface."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN)


def variables(number: int, ranks: int, store: socket.socket | None, node: int = 0, nodes: int = 1) -> dict[str, str]:
    """Return the variables that tell torch, engines and users' programs a rank's place.

    `number` counts within the node.
    """
    counted = {
        "RANK": node * ranks + number,
        "LOCAL_RANK": number,
        "GROUP_RANK": node,
        "WORLD_SIZE": nodes * ranks,
        "LOCAL_WORLD_SIZE": ranks,
    }
    serves = {STORE_FD: store.fileno()} if number == 0 and store else {}
    return {name: str(value) for name, value in (counted | serves).items()}


def fresh(words: list[str], ranks: int, node: int, nodes: int, meeting: Mapping[str, str]) -> Ranks:
    """Start fresh interpreters, one per rank; `meeting` is MASTER_ADDR and MASTER_PORT."""
    store = listening(meeting["MASTER_ADDR"], int(meeting["MASTER_PORT"])) if node == 0 else None

    def start(number: int) -> int:
        if number == 0 and store:
            os.set_inheritable(store.fileno(), True)
        env = {**os.environ, **meeting, **variables(number, ranks, store, node, nodes)}
        return os.posix_spawn(sys.executable, [sys.executable, *words], env, setsigdef=IGNORED)

    return Ranks(start, ranks, node, store)


if __name__ == "__main__":
    count, here, machines = map(int, sys.argv[1:4])
    started = fresh(sys.argv[6:], count, here, machines, {"MASTER_ADDR": sys.argv[4], "MASTER_PORT": sys.argv[5]})
    # Ranks die at once where this process does, and a load client still has to say which requests were at work.
    signal.signal(signal.SIGTERM, started.pass_on)
    code = started.wait()
    sys.exit(SIGNALLED - code if code < 0 else code)
