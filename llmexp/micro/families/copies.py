"""Copies between host and device, and on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from llmexp.micro.families.base import DEVICE, Bar, Curves, Family, Limit, MicroPoint, Setting, sized
from llmexp.schema import HardwareConfig
from llmexp.schema.section import Section, Sizes, Tuple

CopyKind = Literal[
    "host_to_device_pinned",
    "host_to_device_pageable",
    "device_to_host_pinned",
    "device_to_host_pageable",
    "device_to_device",
]
ON_DEVICE: CopyKind = "device_to_device"
WORDS: dict[CopyKind, str] = {
    "host_to_device_pinned": "copies from pinned host memory to the device",
    "host_to_device_pageable": "copies from pageable host memory to the device",
    "device_to_host_pinned": "copies from the device to pinned host memory",
    "device_to_host_pageable": "copies from the device to pageable host memory",
    ON_DEVICE: "copies on the device",
}


class CopyPoints(Section):
    """Copies between host and device, and on the device."""

    kinds: Annotated[tuple[CopyKind, ...], Tuple]
    bytes: Sizes


class Copies(Family[CopyPoints]):
    """Copies, of which those on the device are limited by its memory."""

    name = "copies"
    keys = CopyPoints
    case = "llmexp.launchers.micro.copies:copy"
    title = "copies"
    limits = tuple(Limit(f"{kind}_bytes_per_s", words, "bytes_per_s", kind) for kind, words in WORDS.items())
    curves = Curves("bytes", ("bytes_per_s", "time_s"))
    bar = Bar(("host_to_device_pinned_bytes_per_s", "device_to_device_bytes_per_s"), "copies, GB/s", 1e9)
    larger = "micro.copies.bytes"

    def points(self, wanted: CopyPoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield a point for each kind and size."""
        return sized(self.name, wanted.kinds, wanted.bytes)

    def bytes_moved(self, point: MicroPoint) -> float:
        """Return the bytes that are copied, as such copies are counted everywhere."""
        return float(point.sizes["bytes"])

    def memory(self, kind: str) -> str:
        """Return DEVICE of copies on the device, else ""."""
        return DEVICE if kind == ON_DEVICE else ""

    def data_bytes(self, point: MicroPoint) -> float | None:
        """Return the bytes of source and target of a copy on the device."""
        return 2 * self.bytes_moved(point) if self.memory(point.kind) else None

    def peak(self, rate: str, kind: str, dtype: str, hardware: HardwareConfig) -> None:
        """Return None: memory reads and writes what is counted once."""

    def is_graphed(self, kind: str) -> bool:
        """Tell that copies on the device are kernels alone."""
        return kind == ON_DEVICE


COPIES = Copies()
