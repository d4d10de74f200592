"""A server that somebody else started: it is measured, and neither started nor ended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType

from llmexp.errors import ServerError, ServerHungError, ServerNotReadyError
from llmexp.launch.server_address import key_headers
from llmexp.launch.server_answer import why_no_answer
from llmexp.launchers.serving.server.process import ASKED_S, Patience, Server
from llmexp.launchers.serving.server.server_log import is_no_memory
from llmexp.serving.plan.server_plan import ServerPlan


class RunningServer:
    """A server at the plan's address, with what a load asks of a server; its requests carry LLMEXP_API_KEY."""

    def __init__(self, plan: ServerPlan) -> None:
        """Take the plan of a server that runs already; raises ConfigError for a key that HTTP forbids."""
        assert plan.address
        self.plan, self.url, self.headers = plan, plan.address, key_headers()
        # Nothing is ever sent here: nobody tells when a server elsewhere ends, but its broken connections.
        self._never, self._other_end = socket.socketpair()

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._never.close()
        self._other_end.close()

    def fileno(self) -> int:
        """Return a descriptor that never becomes readable, as the end of the server is not told."""
        return self._never.fileno()

    @property
    def folder(self) -> None:
        """None: what it has read is not known here."""
        return None

    def first_words(self) -> str:
        """Return nothing, as its log is not known here."""
        return ""

    @property
    def pid(self) -> int | None:
        """None: its processes are not this machine's to see."""
        return None

    def wait_ready(self, patience: Patience | None = None, told: Callable[[str], None] | None = None) -> float | None:
        """Return None, as it was not started here; raises ServerNotReadyError where it does not answer at once."""
        if why := why_no_answer(self.url, self.plan.ready, self.headers):
            raise ServerNotReadyError(f"serve.address={why}")
        return None

    def check(self) -> None:
        """Return, as a server elsewhere that has ended is told by its requests."""

    def check_serving(self, why: str, within_s: float = ASKED_S) -> None:
        """Raise ServerHungError if the server does not answer in time; `why` ends the error's words."""
        if found := why_no_answer(self.url, self.plan.ready, self.headers, within_s):
            raise self.hung(f"{found} {why}")

    def hung(self, how: str) -> ServerHungError:
        """Return the error of a server that serves no more; its log is not known here."""
        return ServerHungError(f"the server has stopped serving: {how}")

    def useless(self, how: str) -> ServerError:
        """Return the error of a server that served nothing."""
        error = ServerError(how)
        error.is_out_of_memory = is_no_memory(how)
        return error


AnyServer = Server | RunningServer
