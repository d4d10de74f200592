"""What the machines of a run say to each other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from llmexp.record.result import RunStatus
from llmexp.record.samples import Record


class Here(Record):
    """Another machine than the first: its number, its name and its processors."""

    event: Literal["here"] = "here"
    node: int
    host: str
    cpu: dict[str, Any]


class Welcome(Record):
    """The first machine has taken it in."""

    event: Literal["welcome"] = "welcome"


class Start(Record):
    """Start your ranks of a repeat, by this folder, if your stack is this one; all ranks meet at address and port."""

    event: Literal["start"] = "start"
    repeat: str
    stack: str
    address: str
    port: int = Field(gt=0, lt=2**16)


class Stacks(Record):
    """Let your ranks write their stacks to their logs."""

    event: Literal["stacks"] = "stacks"


class Stop(Record):
    """End your ranks."""

    event: Literal["stop"] = "stop"


class Ended(Record):
    """The ranks here have ended: the exit code of what started them, and where that ends the run the reason and its status."""

    event: Literal["ended"] = "ended"
    code: int
    reason: str
    status: RunStatus
    killed_for_memory: bool


Message = Here | Welcome | Start | Stacks | Stop | Ended
MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="event")])
