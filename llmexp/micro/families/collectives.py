"""Collectives of all ranks, whose sizes and rates are those of nccl-tests (doc/PERFORMANCE.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from llmexp.micro.families.base import Bar, Curves, Family, Limit, MicroPoint, Setting, sized
from llmexp.record.collectives import bus_factor
from llmexp.schema.section import Section, Sizes, Tuple

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "all_to_all", "send_recv"]


class CollectivePoints(Section):
    """Collectives of all ranks, over NCCL or Gloo."""

    kinds: Annotated[tuple[Collective, ...], Tuple]
    bytes: Sizes = Field(description="as nccl-tests counts them: the larger of what a rank puts in and gets out")


class Collectives(Family[CollectivePoints]):
    """Collectives, by their bandwidth of the algorithm and of the bus."""

    name = "collectives"
    keys = CollectivePoints
    case = "llmexp.launchers.micro.collectives:collective"
    title = "collectives of all ranks"
    headings: ClassVar[Mapping[str, str]] = {"algbw_bytes_per_s": "algbw {}B/s", "busbw_bytes_per_s": "busbw {}B/s"}
    limits = tuple(
        Limit(
            f"{kind}_busbw_bytes_per_s",
            f"{kind.replace('_', '-')} of all ranks, bus bandwidth",
            "busbw_bytes_per_s",
            kind,
        )
        for kind in get_args(Collective)
    )
    curves = Curves("bytes", ("busbw_bytes_per_s", "time_s"))
    bar = Bar(("all_reduce_busbw_bytes_per_s",), "all-reduce, GB/s", 1e9)
    fewest_ranks = 2  # of one rank they would do nothing

    def points(self, wanted: CollectivePoints, setting: Setting) -> Iterator[MicroPoint]:
        """Yield a point for each kind and size."""
        return sized(self.name, wanted.kinds, wanted.bytes)

    def rates(self, point: MicroPoint, seconds: float, ranks: int) -> dict[str, float]:
        """Return the size over the time, and that times what a link carries of it."""
        algorithm = point.sizes["bytes"] / seconds
        return {
            "algbw_bytes_per_s": algorithm,
            "busbw_bytes_per_s": algorithm * bus_factor(point.kind, ranks),
        }


COLLECTIVES = Collectives()
