"""The bandwidth of memory, by STREAM's triad."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from llmexp.micro.families.base import DEVICE, Bar, Family, Limit, MicroPoint, Setting, sized
from llmexp.schema.section import Section, Sizes


class MemoryPoints(Section):
    """STREAM's triad, a = b + s c."""

    bytes: Sizes = Field(description="of each of the three arrays")


class Memory(Family[MemoryPoints]):
    """The triad, in the memory of the device."""

    name = "memory"
    keys = MemoryPoints
    case = "llmexp.launchers.micro.memory:triad"
    title = "memory"
    limits = (Limit("memory_bytes_per_s", "STREAM's triad in the device's memory", "bytes_per_s", "triad"),)
    bar = Bar(("memory_bytes_per_s",), "memory, GB/s", 1e9)
    larger = "micro.memory.bytes"

    def points(self, wanted: MemoryPoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield a point for each size."""
        return sized(self.name, ("triad",), wanted.bytes)

    def bytes_moved(self, point: MicroPoint) -> float:
        """Return the bytes of the three arrays."""
        return 3.0 * point.sizes["bytes"]

    def memory(self, kind: str) -> str:
        """Return DEVICE."""
        return DEVICE

    def is_graphed(self, kind: str) -> bool:
        """Tell that calls are kernels alone."""
        return True


MEMORY = Memory()
