"""The messages that the machines of a run send each other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from llmexp.record.result import RunStatus
from llmexp.record.samples import Record


class Here(Record):
    """A further machine introduces itself: its number, its name and its processors."""

    event: Literal["here"] = "here"
    node: int
    host: str
    cpu: dict[str, Any]


class Welcome(Record):
    """The first machine has accepted the sender of Here."""

    event: Literal["welcome"] = "welcome"


class Start(Record):
    """The first machine orders the start of a repeat's ranks.

    The receiver starts its ranks in the folder `repeat` if its stack equals `stack`; all ranks meet at address and
    port.
    """

    event: Literal["start"] = "start"
    repeat: str
    stack: str
    address: str
    port: int = Field(gt=0, lt=2**16)


class Stacks(Record):
    """The first machine asks for the ranks' stacks in their logs."""

    event: Literal["stacks"] = "stacks"


class Stop(Record):
    """The first machine orders the end of the ranks."""

    event: Literal["stop"] = "stop"


class Ended(Record):
    """The ranks of the sender have ended.

    `code` is the exit code of their launcher; `reason` and `status` are those of the run where this ends the run.
    """

    event: Literal["ended"] = "ended"
    code: int
    reason: str
    status: RunStatus
    killed_for_memory: bool


NodeMessage = Here | Welcome | Start | Stacks | Stop | Ended
MESSAGE: TypeAdapter[NodeMessage] = TypeAdapter(Annotated[NodeMessage, Field(discriminator="event")])
