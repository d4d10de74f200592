"""What a run reads, as trackers call it: a data set's name, its place and a digest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadData:
    """A data set; the digest is of what is in it where that was read for the plan, else of how it is described."""

    name: str
    place: str
    digest: str
