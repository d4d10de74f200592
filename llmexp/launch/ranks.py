"""One node's ranks: by which variables they find each other, where they meet, and the first bad end among them.

Started as `python -m llmexp.launch.ranks <ranks> <node> <nodes> <address> <port> <words…>`: fresh interpreters of `python <words…>`, one a rank. It
imports no torch, as torchrun's agent does for seconds, and holds no rendezvous, whose state torchrun's default one unpickles from whoever reaches it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping

from llmexp.launch.supervisor import SIGNALLED
from llmexp.record.process import STORE_FD

LOOPBACK = "127.0.0.1"
# What Python ignores and would hand on.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


class Ranks:
    """Processes that `start` makes when this is made, from their numbers on node `node` to their process ids, and how they end.

    The first rank of node 0 serves the store in which all find each other, on the socket `store`, which is closed here once it has it.
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
        """Return 0 once all have ended well, else the exit code of one that has not, -n where signal n ended it; None as long as they run."""
        for pid, rank in list(self._left.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del self._left[pid]
            if code := os.waitstatus_to_exitcode(status):
                print(f"rank {rank} ended with exit code {code}", flush=True)
                return code
        return None if self._left else 0

    def wait(self) -> int:
        """Block until `poll` has an answer."""
        while (code := self.poll()) is None:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        return code


def listening(address: str, port: int) -> socket.socket:
    """The store's socket, on this address alone, where torch's own would listen on every interface of the machine."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN)


def variables(number: int, ranks: int, store: socket.socket | None, node: int = 0, nodes: int = 1) -> dict[str, str]:
    """What torch, the engines and people's own programs learn a rank's place from; `number` counts within the node."""
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
    """Start fresh interpreters, one a rank; `meeting` is MASTER_ADDR and MASTER_PORT."""
    store = listening(meeting["MASTER_ADDR"], int(meeting["MASTER_PORT"])) if node == 0 else None

    def start(number: int) -> int:
        if number == 0 and store:
            os.set_inheritable(store.fileno(), True)
        env = {**os.environ, **meeting, **variables(number, ranks, store, node, nodes)}
        return os.posix_spawn(sys.executable, [sys.executable, *words], env, setsigdef=IGNORED)

    return Ranks(start, ranks, node, store)


if __name__ == "__main__":
    count, here, machines = map(int, sys.argv[1:4])
    code = fresh(sys.argv[6:], count, here, machines, {"MASTER_ADDR": sys.argv[4], "MASTER_PORT": sys.argv[5]}).wait()
    sys.exit(SIGNALLED - code if code < 0 else code)
