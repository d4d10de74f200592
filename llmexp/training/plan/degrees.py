"""The degrees of parallelism by name: one row has what is cut over a degree's ranks, and which sizes it must divide.

The arithmetic of ranks, the formulas of memory, the limits of other keys, and the words in plans, tables and skips go
by these rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llmexp.schema import EndsAsLayers

# The batch over replicas, matrices with their heads, whole layers, every sequence, whole experts.
Cut = Literal["batch", "matrices", "layers", "sequence", "experts"]


@dataclass(frozen=True)
class Degree:
    """One degree, which ParallelismConfig has as a key and ParallelDims as a field of the same name."""

    kind: str
    """The kind of parallelism, such as tensor."""
    cuts: Cut
    """What each of its ranks has a part of."""
    divides: tuple[str, ...] = ()
    """The sizes of the model, by their keys, that it has to divide."""
    has_ranks: bool = True
    """It multiplies the number of ranks. One that does not is laid over ranks that hold the same parameters."""

    @property
    def cuts_parameters(self) -> bool:
        """Tell whether its ranks hold different parameters."""
        return self.cuts in ("matrices", "layers", "experts")


DEGREES = {
    "dp": Degree("data", "batch"),
    "tp": Degree("tensor", "matrices", divides=("num_heads", "num_kv_heads", "intermediate_size", "vocab_size")),
    "pp": Degree("pipeline", "layers", divides=("num_layers",)),
    "cp": Degree("context", "sequence"),
    "ep": Degree("expert", "experts", divides=("num_experts",), has_ranks=False),
}
# Layers more to share out over stages, by what counts as one.
ENDS: dict[EndsAsLayers | None, int] = {None: 0, "embedding": 1, "head": 1, "both": 2}
WITH_RANKS = tuple(name for name, row in DEGREES.items() if row.has_ranks)
# Ranks are numbered along the first of these first, so that its ranks are neighbors.
RANK_ORDER = ("tp", "cp", "dp", "pp")


def words_of(names: Iterable[str]) -> str:
    """Return the kinds of parallelism of these degrees in words, as in 'data and context parallelism'."""
    kinds = [DEGREES[name].kind for name in names]
    listed = f"{', '.join(kinds[:-1])} and {kinds[-1]}" if len(kinds) > 1 else kinds[0]
    return f"{listed} parallelism"
