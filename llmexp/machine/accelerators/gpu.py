"""What every vendor's driver says of a GPU, and which of a vendor's GPUs a process may use."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

MIB = 1024**2


@dataclass(frozen=True)
class Gpu:
    """One GPU in the driver's own words, which are [N/A] or N/A where it cannot tell."""

    index: str
    uuid: str
    name: str
    memory_mebibytes: str
    power_limit_watts: str
    driver_version: str
    architecture: str | None = None
    """What compilers call it: sm_90, gfx942; None where the driver does not tell."""
    handle: str = ""
    """What a variable that chooses among the visible GPUs calls it."""

    @property
    def memory_bytes(self) -> int | None:
        """The GPU's whole memory; None where the driver does not tell."""
        return int(self.memory_mebibytes) * MIB if self.memory_mebibytes.isdigit() else None


class Vendor(ABC):
    """A maker of GPUs: the tool that lists them, the variables that choose among them, and its compiler."""

    name: ClassVar[str]
    tool: ClassVar[str]
    compiler: ClassVar[str]
    """The program that compiles kernels for its GPUs."""
    variables: ClassVar[tuple[tuple[str, ...], ...]]
    """The variables that choose among the GPUs, in the order in which they act.

    Those of one group mean the same, and the first that is set counts. Each chooses from what the group before left.
    """
    indices_only: ClassVar[bool] = False
    """The variables name GPUs by index alone."""

    @abstractmethod
    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs of this vendor; none where its tool is missing or does not answer."""

    def linked(self) -> bool:
        """Tell whether a bridge or a board links GPUs here by the vendor's own links."""
        return False

    @property
    def chooses(self) -> str:
        """The variable by which a process is given some of the visible GPUs."""
        return self.variables[-1][0]

    def visible(self) -> list[Gpu]:
        """Return the GPUs that the variables allow, by index or by the start of a UUID.

        The first unknown entry of a variable ends the list, as in CUDA.
        """
        seen = list(self.gpus())
        for group in self.variables:
            # What the last group chooses is named by its place among what is seen here.
            seen = [replace(gpu, handle=self._handle(place, gpu)) for place, gpu in enumerate(seen)]
            chosen = next((os.environ[name] for name in group if name in os.environ), None)
            if chosen is not None:
                seen = self.chosen(seen, chosen)
        return seen

    def chosen(self, seen: Sequence[Gpu], words: str) -> list[Gpu]:
        """Return the GPUs that a variable's words name."""
        found: list[Gpu] = []
        for word in (part.strip() for part in words.split(",")):
            match = next(
                (gpu for place, gpu in enumerate(seen) if word and (word == str(place) or gpu.uuid.startswith(word))),
                None,
            )
            if match is None:
                break
            found.append(match)
        return found

    def _handle(self, place: int, gpu: Gpu) -> str:
        return str(place) if self.indices_only else gpu.uuid
