"""The memory that a run needs, as a plan has it: what is certain, and what is estimated besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from llmexp.record.digits import GIB
from llmexp.record.samples import Record, StateBytes

FitVerdict = Literal["yes", "uncertain", "no"]
# An allocator cannot fill a device to the last byte: its blocks have sizes, and other programs have a little.
USABLE_SHARE = 0.97
LIBRARIES = "libraries"


class MemoryEstimate(Record):
    """The bytes of training state that one rank certainly holds at one time.

    A rank counts what lasts from one call of the engine to the next, so `brief_gradients` are in no run's counts.
    Activations and the allocator's waste come on top, and buffers, which are no part of what is certain.
    """

    parameters: StateBytes
    gradients: StateBytes = Field(description="the most between backward and update, copies for the update among them")
    optimizer: StateBytes
    brief_gradients: int = Field(
        0, description="more gradients than `gradients`, copies among them, inside a call of the engine, on the device"
    )
    gathered: int = Field(
        0, description="whole parameters on the device at the end of forward, beside the rank's part of them"
    )
    gathered_beside_gradients: int = Field(0, description="of these what is still there when all gradients are")
    standing_gradients: int = Field(
        0, description="gradients on the device when forward ends, because they stay from one pass to the next"
    )
    made_gradients: int = Field(
        0, description="gradients on the device in the first layer's backward, without copies for the update"
    )
    waiting_gradient: int = Field(
        0, description="the head's whole gradient, where it waits in the backward of layers to be reduced"
    )
    buffers: int = Field(
        0, description="what the engine fills on the device while it computes: buckets, and parameters it has gathered"
    )
    update_buffers: int = Field(0, description="what of that is still there when all gradients are")
    swap_buffers: int = Field(0, description="host memory through which states pass from and to the disk")
    arithmetic: str = Field(description="the same in words, for people")

    def parts_at_backward(self, *, with_host: bool = False) -> dict[str, int]:
        """One rank's bytes on the device by part when forward ends, activations aside; buffers are an estimate.

        `with_host` adds what lies in host memory, which is the same memory for a CPU rank.
        """
        return self._lasting(with_host) | self._passing(self.standing_gradients) | {"buffers": self.buffers}

    def parts_in_backward(self, *, with_host: bool = False) -> dict[str, int]:
        """One rank's bytes on the device by part in the backward of the last layer, the first to run."""
        buffers = {"buffers": self.buffers + self.waiting_gradient}
        return self._lasting(with_host) | self._passing(self.standing_gradients) | buffers

    def parts_after_backward(self, *, with_host: bool = False) -> dict[str, int]:
        """One rank's bytes on the device by part when the first layer's backward ends, activations aside."""
        buffers = {"buffers": self.buffers + self.waiting_gradient}
        return self._lasting(with_host) | self._passing(self.made_gradients) | buffers

    def parts_at_update(self, *, with_host: bool = False) -> dict[str, int]:
        """One rank's bytes on the device by part when all gradients exist, without the engine's buffers.

        It may be the end of forward.
        """
        gradients = self.gradients.device + self.gradients.host * with_host + self.brief_gradients
        return self._lasting(with_host) | self._passing(gradients)

    @property
    def before_backward(self) -> int:
        """One rank's bytes on the device when forward ends, without activations; it is an estimate, as buffers are."""
        return sum(self.parts_at_backward().values())

    @property
    def device(self) -> int:
        """One rank's bytes on the device: the larger of the end of forward and the time when gradients exist."""
        return sum(self.parts_at_update().values())

    @property
    def host(self) -> int:
        """One rank's bytes in host memory."""
        return self.parameters.host + self.gradients.host + self.optimizer.host + self.swap_buffers

    @property
    def disk(self) -> int:
        """One rank's bytes in files."""
        return self.parameters.disk + self.gradients.disk + self.optimizer.disk

    @property
    def in_all(self) -> int:
        """One rank's bytes in device and host memory together, which are one memory for a CPU rank.

        It is less than the sum of both where their peaks are at different times.
        """
        return sum(self.parts_at_update(with_host=True).values())

    def _lasting(self, with_host: bool) -> dict[str, int]:
        kinds = {"parameters": self.parameters, "optimizer": self.optimizer}
        held = {name: kind.device + kind.host * with_host for name, kind in kinds.items()}
        return held | ({"swap buffers": self.swap_buffers} if with_host and self.swap_buffers else {})

    def _passing(self, gradients: int) -> dict[str, int]:
        """Return gradients, and the gathered parameters that are there besides at either moment."""
        return {"gradients": gradients, "gathered": max(self.gathered - gradients, self.gathered_beside_gradients)}

    def shortage(self, ranks_per_node: int, device_bytes: int | None, host_bytes: int | None) -> str | None:
        """Say why it cannot fit, or return None; with `device_bytes` None all state is in host memory."""
        if device_bytes is not None and self.device > device_bytes:
            return (
                f"needs at least {self.device / GIB:.1f} GiB on the device, which has {device_bytes / GIB:.1f} GiB: "
                f"{self.arithmetic}"
            )
        on_host = ranks_per_node * (self.host if device_bytes is not None else self.in_all)
        if host_bytes is not None and on_host > host_bytes:
            return (
                f"needs at least {on_host / GIB:.1f} GiB of host memory for {ranks_per_node} ranks on a node, which "
                f"has "
                f"{host_bytes / GIB:.1f} GiB: {self.arithmetic}"
            )
        return None


@dataclass(frozen=True)
class Fit:
    """What a rank needs, and what it has, in bytes; training state is certain, the rest is estimated."""

    state: int
    rest: int
    capacity: int
    waste: int = 0
    """What the allocator may keep besides, for lack of free blocks of the right size."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """What `state` and `rest` consist of at the fullest moment, by name."""

    @property
    def need(self) -> int:
        """The least that a rank holds at its fullest moment."""
        return self.state + self.rest

    @property
    def tensors(self) -> int:
        """The same without the libraries: the allocator's peak."""
        return self.need - self.parts.get(LIBRARIES, 0)

    @property
    def most(self) -> int:
        """The same with the allocator's waste."""
        return self.need + self.waste

    @property
    def certain(self) -> bool:
        """Tell whether state alone is more than there is, so that the answer no needs no estimate."""
        return self.state > self.capacity

    @property
    def verdict(self) -> FitVerdict:
        """`yes` where it fits with the waste, `no` where it does not even without, else `uncertain`."""
        if self.need > self.capacity:
            return "no"
        return "yes" if self.most <= USABLE_SHARE * self.capacity else "uncertain"
