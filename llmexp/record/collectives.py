"""Collectives by the names that libraries give them, and their bus bandwidth as nccl-tests defines it.

It is what a link carries (doc/PERFORMANCE.md of nccl-tests).
"""

from __future__ import annotations

import re

ALL_GATHER = "all_gather"
# The larger of what a rank puts in and gets out, times this, goes over each rank's links.
_FACTORS = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    ALL_GATHER: lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
}
# What kernels of NCCL and ranges of Gloo are called; the first that is found decides.
_NAMES = (
    ("all_reduce", r"all_?reduce"),
    (ALL_GATHER, r"all_?gather"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_to_all", r"all_?to_?all"),
    ("send_recv", r"send|recv"),
    ("broadcast", r"broadcast"),
    ("reduce", r"reduce"),
)


def bus_factor(kind: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth of a collective."""
    return _FACTORS[kind](ranks) if kind in _FACTORS else 1.0


def collective_kind(name: str) -> str | None:
    """Return the collective that a kernel or a range of this name carries out; None where the name tells none."""
    return next((kind for kind, pattern in _NAMES if re.search(pattern, name, re.IGNORECASE)), None)
