"""What the paper's text says of its figures 6 to 9, which have no values: statements on throughput and latency."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from llmexp.paper.printed import LARGEST_HARDWARE, read_table


@dataclass(frozen=True)
class Statement:
    """A statement of the paper on a figure, with the machines and models that it is about."""

    figure: str
    hardware: tuple[str, ...]
    models: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"the paper's figure {self.figure} ({', '.join(self.models)} on {', '.join(self.hardware)}): {self.text}"


@cache
def statements() -> tuple[Statement, ...]:
    """Return all statements in the order of the figures."""
    return tuple(
        Statement(row["figure"], _several(row["hardware"]), _several(row["models"]), row["statement"])
        for row in read_table("figures_serving")
    )


def statements_on(hardware: frozenset[str], models: frozenset[str]) -> list[Statement]:
    """Return the statements on any of these models on any of these machines, or on A800 where it has none of them."""
    known = {name for statement in statements() for name in statement.hardware}
    wanted = hardware & known or {LARGEST_HARDWARE}
    return [statement for statement in statements() if wanted & {*statement.hardware} and models & {*statement.models}]


def _several(cell: str) -> tuple[str, ...]:
    return tuple(cell.split(";"))
