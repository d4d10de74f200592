"""A point made ready on a rank: calls on several sets of random inputs, and a check of what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from llmexp.dtypes import SINGLE
from llmexp.measure.calls import Call
from llmexp.measure.dtypes import torch_dtype
from llmexp.micro.plan.micro_plan import TIMES_CACHE

MOST_SETS, MOST_BYTES_OF_SETS = 64, 2**31
T = TypeVar("T")


@dataclass(frozen=True)
class CasePlace:
    """Where a point is measured: the rank's device among all ranks, the last cache, and a folder for files."""

    device: torch.device
    rank: int
    world_size: int
    cache_bytes: int
    folder: Path

    def random(self, *shape: int, dtype: str = SINGLE) -> Tensor:
        """Return normally distributed values on the device."""
        return torch.randn(shape, device=self.device, dtype=torch_dtype(dtype))

    def sets(self, make: Callable[[], T], bytes_of_set: int) -> list[T]:
        """Make as many sets of inputs as no cache holds, but no more than memory has room for."""
        wanted = -(-TIMES_CACHE * self.cache_bytes // max(bytes_of_set, 1))
        room = MOST_BYTES_OF_SETS // max(bytes_of_set, 1)
        return [make() for _ in range(max(1, min(wanted, room, MOST_SETS)))]


@dataclass(frozen=True)
class Case:
    """A point's calls, each on its own inputs; `wrong` says what is wrong with what they compute, or ""."""

    calls: Sequence[Call]
    wrong: Callable[[], str]
    what_ran: str = ""
