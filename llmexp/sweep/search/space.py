"""What a search varies: each dimension is a key with the choices, or the range of numbers, that its word names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Up to this many points of a space without intervals, a trial is never a point that an earlier one was.
MOST_POINTS = 10_000


@dataclass(frozen=True)
class SearchChoices:
    """A key with some values, as a person types them."""

    key: str
    values: tuple[str, ...]

    @property
    def probes(self) -> tuple[str, ...]:
        """The values that are planned before the search starts."""
        return self.values

    @property
    def points(self) -> int | None:
        """The number of different values."""
        return len(self.values)


@dataclass(frozen=True)
class SearchRange:
    """A key with a range of numbers, both ends included: all between them, or `whole` ones, which may have a step.

    With `log`, equal ratios are equally likely.
    """

    key: str
    low: float
    high: float
    step: int = 1
    log: bool = False
    whole: bool = False

    @property
    def probes(self) -> tuple[str, ...]:
        """The values that are planned before the search starts."""
        if self.whole:
            return typed_number(int(self.low)), typed_number(int(self.high))
        # One between the ends shows a key that takes whole numbers only.
        return typed_number(self.low), typed_number(self.low + (self.high - self.low) / 3), typed_number(self.high)

    @property
    def points(self) -> int | None:
        """The number of different values; None where there are endless ones."""
        return len(self.whole_numbers) if self.whole else None

    @property
    def whole_numbers(self) -> range:
        """The numbers of a `whole` range."""
        return range(int(self.low), int(self.high) + 1, self.step)


Dimension = SearchChoices | SearchRange
# The value of each key, as a person types it.
SearchPoint = Mapping[str, str]


def typed_number(value: float) -> str:
    """Return a number as a person types it, in all its digits: the run is that of this very number."""
    return repr(value)


def points_of(space: Sequence[Dimension]) -> int | None:
    """Return the number of different points; None where there are endless ones, or too many to be told apart."""
    counts = [dimension.points for dimension in space]
    if None in counts:
        return None
    product = math.prod(count for count in counts if count)
    return product if product <= MOST_POINTS else None


def probes_of(space: Sequence[Dimension]) -> list[SearchPoint]:
    """Return points with every choice and every end of a range, the other keys at their first value."""
    first = {dimension.key: dimension.probes[0] for dimension in space}
    return [first, *(first | {each.key: value} for each in space for value in each.probes[1:])]


def short_words(point: SearchPoint) -> str:
    """Return a point in words."""
    return " ".join(f"{key}={value}" for key, value in point.items())
