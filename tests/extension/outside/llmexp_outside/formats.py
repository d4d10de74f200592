"""A format of numbers that llmexp neither trains nor measures in by itself."""

from __future__ import annotations

from llmexp.extend import NumberFormat

DOUBLE = NumberFormat(
    8,
    "float64",
    traced=("double",),
    holds_parameters=True,
    has_peak=True,
    unit_roundoff=2.0**-53,
    losses_within=1e-9,
    norms_within=1.0003,
    adamw_within=1.1,
)
