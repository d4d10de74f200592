"""Work of a trace whose floating-point operations follow from the shapes of its inputs, with the rates it reached."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from llmexp.dtypes import bytes_of
from llmexp.record.samples import Record

if TYPE_CHECKING:  # it takes a third of the time in which a trace's reader is imported
    from llmexp.schema import HardwareConfig

# Products of two matrices in attention: scores and weighted values; a kernel that keeps no scores computes them once
# more in backward, besides two gradients of each product (FlashAttention, arXiv 2205.14135, algorithm 4).
FORWARD, BACKWARD = (1, 1), (3, 2)


class CountedPeaks(Record):
    """The dense peaks of one device by its hardware file; empty where none is known."""

    flops_per_s: dict[str, PositiveFloat] = Field(default_factory=dict, description="by dtype")
    bytes_per_s: PositiveFloat | None = Field(None, description="of its memory")

    @classmethod
    def of(cls, hardware: HardwareConfig) -> CountedPeaks:
        """Take those of a run's hardware."""
        return cls(flops_per_s={**hardware.peak_flops_per_s}, bytes_per_s=hardware.memory_bandwidth_bytes_per_s)


class _CountedTime(Record, ABC):
    """All calls of one operator with inputs of one shape; `dtype` is empty where the trace does not tell it."""

    operator: str
    calls: PositiveInt
    work_ns: NonNegativeInt
    dtype: str = ""

    @property
    @abstractmethod
    def flops(self) -> float:
        """The floating-point operations of all calls, a multiplication and an addition each."""

    @property
    @abstractmethod
    def least_bytes(self) -> float | None:
        """The bytes of inputs and results of all calls, each moved once, which is the least that can be."""

    @property
    def flops_per_s(self) -> float | None:
        """The rate of operations; None where the work took no time."""
        return 1e9 * self.flops / self.work_ns if self.work_ns else None

    @property
    def bytes_per_s(self) -> float | None:
        """The rate of `least_bytes`; None where the work took no time or its dtype is unknown."""
        return 1e9 * self.least_bytes / self.work_ns if self.work_ns and self.least_bytes is not None else None


class GemmTime(_CountedTime):
    """All matrix products of one operator and shape: batch times [m, k] by [k, n]."""

    batch: NonNegativeInt
    m: NonNegativeInt
    n: NonNegativeInt
    k: NonNegativeInt

    @property
    def flops(self) -> float:
        """Two for each of the m * n * k products of numbers."""
        return 2 * self.batch * self.m * self.n * self.k * self.calls

    @property
    def least_bytes(self) -> float | None:
        """The bytes of both matrices and of the result."""
        numbers = self.m * self.k + self.k * self.n + self.m * self.n
        return _bytes(self.batch * numbers * self.calls, self.dtype)


class AttentionTime(_CountedTime):
    """All calls of attention in one kernel with inputs of one shape.

    `pairs` are those of a query and a key that a head of one sequence computes: all, or with `causal` half of the
    square. Of sequences packed into one the trace tells the number and the tokens, not the lengths: then `queries` and
    `keys` are their means and `equal_lengths` is true, because sequences of one length have the fewest pairs.
    """

    backward: bool
    causal: bool
    batch: NonNegativeInt
    heads: NonNegativeInt
    kv_heads: NonNegativeInt
    queries: NonNegativeFloat
    keys: NonNegativeFloat
    head_dim: NonNegativeInt
    value_dim: NonNegativeInt
    pairs: NonNegativeFloat
    equal_lengths: bool = False

    @property
    def flops(self) -> float:
        """Two products forward; backward five, two and a half times as much where all dimensions are equal."""
        of_keys, of_values = BACKWARD if self.backward else FORWARD
        per_pair = 2 * (of_keys * self.head_dim + of_values * self.value_dim)
        return per_pair * self.pairs * self.heads * self.batch * self.calls

    @property
    def least_bytes(self) -> float | None:
        """The bytes of queries, keys, values and the result, and in backward of their gradients too."""
        query = self.queries * self.heads * (self.head_dim + self.value_dim)
        key = self.keys * self.kv_heads * (self.head_dim + self.value_dim)
        numbers = (2 if self.backward else 1) * (query + key) * self.batch
        return _bytes(numbers * self.calls, self.dtype)


def _bytes(numbers: float, dtype: str) -> float | None:
    """Return the bytes of so many numbers; None for a format that is not known."""
    try:
        return numbers * bytes_of(dtype)
    except KeyError:
        return None
