"""Starts an inference server as a child, waits until it serves, notices its end, and leaves nothing of it behind.

The server runs under llmexp's supervisor: where this process ends, however it does, the supervisor ends the server and
all processes that it started.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

from llmexp.errors import ServerDiedError, ServerError, ServerHungError, ServerNotReadyError
from llmexp.launch.server_address import API_KEY, api_key
from llmexp.launch.spawn import Agent
from llmexp.launchers.serving.server.container import Container
from llmexp.launchers.serving.server.scratch import Scratch
from llmexp.launchers.serving.server.server_log import LogWatch, ServerLog, is_no_memory
from llmexp.machine.memory import oom_kills
from llmexp.machine.process_tree import descendants
from llmexp.record.port import HOST, Port
from llmexp.serving.plan.server_plan import ServerPlan
from llmexp.serving.record.profiled_load import TRACES

# In seconds: for how long a server that served may keep its readiness route waiting, and how long one that stopped
# serving may take to end.
ASKED_S, ENDS_S = 30.0, 5.0
E = TypeVar("E", bound=ServerError)
# A port is kept from others until the server has it; one that does not listen at a kept port gets one that is free.
ATTEMPTS = 3
_TAKEN = ("address already in use", "port is already allocated")
# The libraries of a model's folder need no network; a server that asks for it anyway would wait for its timeouts.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True)
class Patience:
    """How long a start may take, in seconds; whatever the log gains counts as life."""

    silent_s: float = 120.0
    in_all_s: float = 1800.0
    between_s: float = 0.2
    answer_s: float = 5.0


class Server:
    """A running server at `address`; a context manager that ends it and all its processes."""

    def __init__(self, plan: ServerPlan, folder: Path, log: Path, threads: int = 1) -> None:
        """Start the plan's command for a model's folder, with so many threads; its output is added to `log`."""
        self.plan, self.folder, self.log, self.threads = plan, folder, log, threads
        self._key = _key_of(plan)
        self.headers: Mapping[str, str] = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._words = ServerLog(log)
        self._code: int | None = None
        self._oom_kills = oom_kills()
        self._container = Container.of(plan.container, log)
        self._scratch = Scratch.of(plan.command.argv, log)
        self._root, self._started_s = 0, 0.0
        self._begin(hold=True)

    @property
    def address(self) -> str:
        """The host and port that the server listens at, such as 127.0.0.1:40123."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The address as requests need it."""
        return f"http://{self.address}"

    @property
    def port(self) -> int:
        """The server's port; another one after a start that found its port taken."""
        return self._port.number

    @property
    def pid(self) -> int:
        """The process below which all processes of the server are; it stays the same once the server is ready."""
        return self._root

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def fileno(self) -> int:
        """Return a descriptor for select, or an event loop's reader, that becomes readable when the server has ended.

        It stays the same once the server is ready.
        """
        return self._agent.fileno()

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the server that run now."""
        return descendants(self.pid)

    def wait_ready(self, patience: Patience | None = None, told: Callable[[str], None] | None = None) -> float:
        """Sleep until the server answers its readiness route with 200; return the seconds since its start.

        `told` is called with every new last line of its log. Raises ServerDiedError, ServerNotReadyError.
        """
        limits, watch = patience or Patience(), LogWatch(self._words, told)
        attempt = 1
        while not self._answers(limits.answer_s):
            if self._agent.ends_within(limits.between_s):
                if attempt == ATTEMPTS or not self._found_its_port_taken():
                    raise self._died()
                attempt += 1
                self._begin(hold=False)
            watch.look()
            silent_s, since_s = time.monotonic() - watch.grown_at_s, time.monotonic() - self._started_s
            if silent_s > limits.silent_s or since_s > limits.in_all_s:
                raise self._not_ready(since_s, silent_s, limits)
        self._port.release()
        if self._container:
            self._root = self._container.init_process() or self._root
        return time.monotonic() - self._started_s

    def check(self) -> None:
        """Raise ServerDiedError if the server has ended."""
        if self._code is not None or self._agent.ends_within(0):
            raise self._died()

    def check_serving(self, why: str, within_s: float = ASKED_S) -> None:
        """Raise ServerDiedError where the server has ended, ServerHungError where it does not answer when asked.

        `why` ends the error's first sentence.
        """
        self.check()
        if self._answers(within_s):
            return
        # One that has just ended does not answer either, and says so only now.
        if self._agent.ends_within(ENDS_S):
            raise self._died()
        raise self.hung(f"it does not answer GET {self.plan.ready} at {self.address} {why}")

    def hung(self, how: str) -> ServerHungError:
        """Return the error of a server that runs and serves no more."""
        return self._told(ServerHungError(f"the server has stopped serving: {how}; {self._words.in_a_line(True)}"))

    def useless(self, how: str) -> ServerError:
        """Return the error of a server that served nothing."""
        error = self._told(ServerError(f"{how}; {self._words.in_a_line(True)}"))
        error.is_out_of_memory |= is_no_memory(how)
        return error

    def stop(self) -> int:
        """End the server and all its processes (SIGTERM, after a grace period SIGKILL); return its exit code.

        The code is -n where signal n ended it, also where it was the signal of this call.
        """
        if self._code is None:
            self._code = self._agent.stop()
            self._port.release()
        return self._code

    def first_words(self) -> str:
        """Return the begin of the server's log since its start."""
        return self._words.head()

    def last_words(self) -> str:
        """Return the last lines of the server's log since its start."""
        return self._words.last_lines()

    def _begin(self, hold: bool) -> None:
        self._port = Port(hold)
        self._words.begin()
        command = self.plan.command
        python = self.plan.python or sys.executable
        argv = command.words(
            folder=self.folder,
            port=self.port,
            trace=(self.log.parent / TRACES).absolute(),
            python=python,
            own_python=sys.executable,
            threads=self.threads,
            inner_port=Port(hold=False).number,
            name=self._container.name if self._container else "",
            scratch=self._scratch.path if self._scratch else "",
        )
        # Servers that have no option for it take the variables; torch takes MKL's, and ranks have that of all cores.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))
        variable = [self.plan.key_variable] if self.plan.key_variable else []
        # What stands in an environment, no other user of the machine can read.
        env = {
            **threads,
            "PATH": _path(python),
            **command.env,
            **(dict.fromkeys(variable, self._key) if self._key else {}),
        }
        # A key of the shell's would be asked for, and no request has it.
        unset = [*command.unset, *variable]
        outside = self._container or self._scratch
        self._agent = Agent(argv, _environment(env, unset), self.log, outside.ending if outside else ())
        self._root = self._agent.pid
        self._started_s = time.monotonic()

    def _found_its_port_taken(self) -> bool:
        self._agent.stop()
        self._port.release()
        said = self._words.tail().lower()
        return any(words in said for words in _TAKEN)

    def _answers(self, within_s: float) -> bool:
        """Tell whether the readiness route answers 200, and by a process of ours: no other server had the port."""
        connection = HTTPConnection(HOST, self.port, timeout=within_s)
        try:
            connection.request("GET", self.plan.ready, headers=dict(self.headers))
            return connection.getresponse().status == 200 and self._listens()
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def _listens(self) -> bool:
        if self._container:
            return self._container.publishes(self.port)
        return any(_listens_at(process, self.port) for process in self.processes())

    def _died(self) -> ServerDiedError:
        code = self.stop()
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        killed = oom_kills() > self._oom_kills
        if killed:
            how += ", and meanwhile the kernel killed a process because host memory ran out"
        error = self._told(ServerDiedError(f"the server {how}; {self._words.in_a_line(code > 0)}", code))
        error.is_out_of_memory |= killed
        return error

    def _not_ready(self, since_s: float, silent_s: float, limits: Patience) -> ServerNotReadyError:
        return self._told(
            ServerNotReadyError(
                f"the server does not answer GET {self.plan.ready} at {self.address}, {since_s:.0f} s after its start "
                f"and {silent_s:.0f} s after its log's last line (serve.silent_timeout_s={limits.silent_s:g}); "
                f"{self._words.in_a_line(True)}"
            )
        )

    def _told(self, error: E) -> E:
        """Add the last lines of the log to an error, and whether they tell of memory that ran out."""
        if lines := self._words.last_lines():
            error.add_note(f"the end of {self.log}:\n{lines}")
        error.is_out_of_memory = self._words.tells_of_no_memory()
        return error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment(added: Mapping[str, str], unset: list[str]) -> dict[str, str]:
    """Return this process's environment without the variables of a rank, and with the server's own."""
    ranks_own = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *unset}
    kept = {name: value for name, value in os.environ.items() if name not in ranks_own}
    return {**kept, **OFFLINE, "PYTHONUNBUFFERED": "1", **added}


def _key_of(plan: ServerPlan) -> str:
    """Return the user's key, or one for this start alone: any user of the machine reaches the server's port.

    A command of the user's own is told the user's alone, as nobody knows whether it would ask for another.
    """
    if not plan.key_variable:
        return ""
    return api_key() or ("" if plan.key_variable == API_KEY else secrets.token_urlsafe(24))


def _path(python: str) -> str:
    """Return PATH with an interpreter's folder first: a server finds the programs of its environment, such as ninja."""
    return os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)])


def _listens_at(process: psutil.Process, port: int) -> bool:
    try:
        found = process.net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)
