"""The row that claims are decided by: one type for published figures and for runs.

Figures are tokens/s over all GPUs, and GB (10^9 bytes) of a GPU's peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SMALL_CARD_BYTES, LARGE_CARD_BYTES = 26e9, 79e9
GPU, SMALL, LARGE = "gpu", "24gb", "80gb"
ONE, LARGEST = "one", "largest"
UNKNOWN = 1e6
"""How far from its value, as a ratio, the ends of an interval are put of which nothing is known."""


@dataclass(frozen=True)
class RowFigure:
    """A value with the ends of its 95 % interval, which for a printed value are the value itself."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> RowFigure:
        """Return a value that is taken as it is."""
        return cls(value, value, value)

    def over(self, other: RowFigure) -> RowFigure:
        """Return the ratio; its interval is the widest that both allow, so it errs towards cannot tell."""
        return RowFigure(self.value / other.value, self.low / other.high, self.high / other.low)

    def widened(self, factor: float) -> RowFigure:
        """Return the value with an interval that is so many times as wide, as a ratio."""
        return RowFigure(
            self.value, self.value * (self.low / self.value) ** factor, self.value * (self.high / self.value) ** factor
        )


@dataclass(frozen=True)
class ClaimRow:
    """A published cell, a line of another published table, or a run.

    `batches` are the words by which a claim asks for the batch: its number of samples a GPU, 'one' and 'largest'.
    `setting` is all that two rows must share to be compared, whatever a claim is about; `options` are an engine's own,
    which two rows of that engine share too. `platform` has the hardware's name and its classes. `doubt` says why the
    figures cannot be relied on.
    """

    table: str
    label: str
    values: Mapping[str, RowFigure]
    task: str = ""
    engine: str = ""
    model: str = ""
    method: frozenset[str] = frozenset()
    hardware: str = ""
    platform: frozenset[str] = frozenset()
    micro: int = 0
    batches: frozenset[str] = frozenset()
    gpus: int = 0
    setting: str = ""
    options: str = ""
    oom: bool = False
    doubt: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return hash((self.table, self.label, self.hardware, self.micro, self.setting))


def atoms(method: str) -> frozenset[str]:
    """Return the atoms of a method's name in capitals; none for Naive."""
    return frozenset(method.upper().split("+")) - {"NAIVE", "FULL-FT"}


def platform(hardware: str, memory_bytes: float | None) -> frozenset[str]:
    """Return the words that claims may use for a GPU: its name, 'gpu', and the class of its memory."""
    if memory_bytes is None:
        return frozenset({hardware, GPU})
    sizes = {SMALL: memory_bytes <= SMALL_CARD_BYTES, LARGE: memory_bytes >= LARGE_CARD_BYTES}
    return frozenset({hardware, GPU, *(size for size, fits in sizes.items() if fits)})


def batch_words(micro: int, is_largest: bool) -> frozenset[str]:
    """Return the words for a batch of `micro` samples a GPU."""
    words = {str(micro): True, ONE: micro == 1, LARGEST: is_largest}
    return frozenset(word for word, applies in words.items() if applies)


def doubtful(rows: Iterable[ClaimRow]) -> list[str]:
    """Return the names of the rows that cannot be relied on, each once."""
    return list(dict.fromkeys(f"{row.table} {row.label}".strip() for row in rows if row.doubt))
