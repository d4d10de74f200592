"""Random numbers that are found by where they belong, so that the same request is the same wherever it is made.

They come from SHAKE-128 (FIPS 202), whose output is fixed by a standard: Python promises the same numbers in all its
versions only of random.random(), and none of choices, randrange or gauss. More numbers of one place begin with the
fewer ones, and no number depends on how many were drawn elsewhere.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import shake_128

BITS = 64


@dataclass(frozen=True)
class DrawSeries:
    """The requests of one load point, or of the warm-up before it; other series share nothing with them."""

    seed: int
    point: int
    is_warmup: bool = False

    def numbers(self, purpose: str, place: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Return so many whole numbers from 0 to 2**64 - 1, equally likely, for a purpose at a place of the series."""
        label = ("warm-up" if self.is_warmup else "point", self.seed, self.point, purpose, *place)
        drawn = shake_128("/".join(map(str, label)).encode()).digest(count * BITS // 8)
        return struct.unpack(f"<{count}Q", drawn)

    def share(self, purpose: str, place: tuple[int, ...]) -> float:
        """Return a number between 0 and 1, without the two."""
        # 52 bits and a half are exact in a float, and never 0 nor 1.
        return ((self.numbers(purpose, place, 1)[0] >> 12) + 0.5) / 2**52

    def below(self, limit: int, purpose: str, place: tuple[int, ...]) -> int:
        """Return a whole number from 0 to limit - 1."""
        return scaled(self.numbers(purpose, place, 1), limit)[0]


def scaled(numbers: tuple[int, ...], limit: int) -> list[int]:
    """Turn numbers of a series into whole numbers from 0 to limit - 1, as likely as each other to limit / 2**64."""
    return [number * limit >> BITS for number in numbers]
