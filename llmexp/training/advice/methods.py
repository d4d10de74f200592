"""The methods that a training task leaves to choose from."""

from __future__ import annotations

from collections.abc import Iterator

from llmexp.method import NAIVE

# Q is left out: with frozen layers it pre-trains no model.
_ADAPTERS = {"pretrain": ("",), "finetune": ("", "L", "QL")}
# From what costs least time to what holds least; offload helps one device too.
_SHARDED = ("", "Z1", "Z2", "Z3", "Z2+O", "Z3+O")
_ALONE = ("", "Z2+O", "Z3+O")


def methods(task: str, same_parameters: int, *, fused: bool) -> Iterator[str]:
    """Yield sums of atoms, with F where attention can be fused.

    `same_parameters` is the number of ranks that hold the same ones, over which Z can partition state.
    """
    for adapter in _ADAPTERS[task]:
        for again in ("", "R"):
            for sharding in _SHARDED if same_parameters > 1 else _ALONE:
                yield joined(adapter, "F" * fused, again, sharding)


def joined(*atoms: str) -> str:
    """Join the atoms that are not empty; none at all are Naive."""
    return "+".join(filter(None, atoms)) or NAIVE
