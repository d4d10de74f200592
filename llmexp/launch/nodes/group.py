"""One repeat's ranks on all machines, held as one: the first machine's own agent, and its messages to the others."""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Sequence
from types import TracebackType

import psutil

from llmexp.launch.nodes.channel import Channel
from llmexp.launch.nodes.messages import Stacks, Stop
from llmexp.launch.nodes.peers import Member
from llmexp.launch.spawn import Agent

# Longer than the clean-up of another machine takes (supervisor.py).
STOP_WITHIN_S = 60.0


class Group:
    """A context manager that ends all ranks on all machines."""

    def __init__(self, own: Agent, members: Iterable[Member]) -> None:
        self._own, self._members = own, tuple(members)
        self._ended, self._code = False, 0
        self._failed: Member | None = None

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ends_within(self, seconds: float) -> bool:
        """Block until the ranks of all machines have ended, those of one have failed, or the seconds are over.

        Says whether the ranks have ended or failed.
        """
        own = [] if self._ended else [self._own]
        ready = _ready([*own, *(member.channel for member in self._at_work())], seconds)
        self._listen(ready)
        if self._own in ready:
            self._ended, self._code = True, self._own.stop()
        return bool(self._code or any(member.code for member in self._members) or self.lost) or (
            self._ended and not self._at_work()
        )

    def stop(self) -> int:
        """End all processes that still run; return the exit code of the command that failed first.

        Later failures do not count, because commands that are ended here fail too.
        """
        self._failed = self._failed or self._first_to_fail()
        for member in self._at_work():
            member.channel.say(Stop())
        self._code = self._own.stop()
        self._await_the_others()
        self._failed = self._failed or self._first_to_fail()
        return (self._failed.code if self._failed else None) or self._code

    @property
    def launcher(self) -> str:
        """The name of the launcher that the exit code belongs to."""
        return f"the launcher of {self._failed}" if self._failed else "the launcher"

    def _first_to_fail(self) -> Member | None:
        """Return another machine whose part failed while the first machine's own part did not."""
        return None if self._code else next((member for member in self._members if member.code), None)

    def ask_for_stacks(self, elsewhere: Iterable[psutil.Process] = ()) -> None:
        """Ask for stacks as an agent does, on every machine."""
        for member in self._at_work():
            member.channel.say(Stacks())
        if not self._ended:
            self._own.ask_for_stacks(elsewhere)

    @property
    def lost(self) -> list[Member]:
        """Machines that have gone before their part ended."""
        return [member for member in self._members if member.code is None and not member.channel.alive]

    @property
    def unable(self) -> list[Member]:
        """Machines that could not start or continue their part, with the reason."""
        return [member for member in self._members if member.reason]

    def _at_work(self) -> list[Member]:
        return [member for member in self._members if member.code is None and member.channel.alive]

    def _await_the_others(self) -> None:
        deadline = time.monotonic() + STOP_WITHIN_S
        while (left := self._at_work()) and (seconds := deadline - time.monotonic()) > 0:
            self._listen(_ready([member.channel for member in left], seconds))
        for member in self._at_work():
            member.channel.alive = False

    def _listen(self, ready: Sequence[object]) -> None:
        for member in self._at_work():
            if member.channel in ready:
                member.listen()


def _ready(ends: Sequence[Agent | Channel], seconds: float) -> Sequence[object]:
    return select.select(ends, [], [], seconds)[0]
