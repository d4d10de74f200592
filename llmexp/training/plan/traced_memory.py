"""What a traced rank holds at the moments that decide whether it fits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llmexp.record.samples import Record

Moment = Literal["forward_end", "passes", "update"]
# The parts of a rank's memory, in the order in which a table shows them.
PARTS = ("parameters", "gradients", "optimizer", "buffers", "engine", "activations", "temporary")


class TracedMoment(Record):
    """The bytes of one rank's tensors at one moment of a step, by part."""

    parameters: int = Field(0, description="the rank's part of the parameters, with 4-bit weights and their scales")
    gradients: int = Field(0, description="those that last until the update, copies for the update among them")
    optimizer: int = Field(0, description="moments, and the copy of the parameters where one is updated")
    buffers: int = Field(0, description="the model's buffers and the batch")
    engine: int = Field(0, description="what the wrapper holds while it computes: gathered parameters and buckets")
    activations: int = Field(0, description="what forward leaves for backward")
    temporary: int = Field(0, description="all else, such as gradients of activations and what is computed again")

    @property
    def together(self) -> int:
        """The bytes of all parts."""
        return sum(getattr(self, part) for part in PARTS)


class TracedStep(Record):
    """A step's moments: where forward ends, where its passes hold most, and where the update does."""

    forward_end: TracedMoment
    passes: TracedMoment
    update: TracedMoment

    @property
    def peak(self) -> TracedMoment:
        """The fullest of the moments."""
        return max(self.passes, self.update, key=lambda moment: moment.together)


class TracedMemory(Record):
    """What was traced of a plan: the first step, which makes the optimizer's state, and the second."""

    steps: tuple[TracedStep, TracedStep]
    time_s: float = Field(description="of the tracing, imports left out")
    torch: str = Field(description="torch's version")
