"""Files past the page cache, as states that are offloaded to NVMe would be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from llmexp.micro.families.base import Family, Limit, MicroPoint, Setting, sized
from llmexp.schema.section import Section, Sizes, Tuple


class DiskPoints(Section):
    """Files written and read past the page cache, as states that are offloaded to NVMe would be."""

    kinds: Annotated[tuple[Literal["write", "read"], ...], Tuple]
    bytes: Sizes
    folder: str | None = Field(None, description="None: the run's own folder")


class Disk(Family[DiskPoints]):
    """Writing and reading a file."""

    name = "disk"
    keys = DiskPoints
    case = "llmexp.launchers.micro.disk:disk"
    title = "disk"
    limits = tuple(
        Limit(f"disk_{kind}_bytes_per_s", f"disk, {kind} past the page cache", "bytes_per_s", kind)
        for kind in ("write", "read")
    )

    def points(self, wanted: DiskPoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield a point for each kind and size."""
        return sized(self.name, wanted.kinds, wanted.bytes)

    def bytes_moved(self, point: MicroPoint) -> float:
        """Return the bytes of the file."""
        return float(point.sizes["bytes"])

    def folder(self, wanted: DiskPoints) -> str | None:
        """Return micro.disk.folder."""
        return wanted.folder


DISK = Disk()
