"""The formats of numbers by name: one row has all that configuration, arithmetic, ranks and traces need of one.

Other packages add rows by entry points of llmexp.dtypes; a name that llmexp knows from traces alone may be theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint

from llmexp import plugins


@dataclass(frozen=True)
class NumberFormat:
    """One format. Tolerances are those between two trainings that differ in the order of their sums."""

    bytes: int
    """Of a number."""
    torch: str = ""
    """Its name in torch, in transformers and on servers' command lines; empty where torch holds none."""
    scale_bytes: float = 0.0
    """Of a number's part of the scale that it shares with others."""
    traced: tuple[str, ...] = ()
    """Its names in the traces of torch's profiler."""
    holds_parameters: bool = False
    """Parameters, gradients and moments may be in it, and microbenchmarks compute in it."""
    holds_moments: bool = False
    """An optimizer may keep its moments in it although parameters are in another one."""
    has_peak: bool = False
    """Hardware may state its dense peak, hardware.peak_flops_per_s."""
    fused_attention: bool = False
    """The fused attention kernels of CUDA take it."""
    unit_roundoff: float = 0.0
    """Half the distance of 1 to the next number: the largest relative error of one rounding."""
    losses_within: float = 2e-3
    """The tolerance of the loss, as a share."""
    norms_within: float = 1.02
    """The tolerated factor between the first step's gradient norms."""
    adamw_within: float = 1.9
    """The tolerated factor between the first step's largest updates by AdamW, which is as large for all elements.

    bf16 parameters change in steps of their own size, which may nearly double it.
    """


FORMATS = {
    "fp64": NumberFormat(8, "float64", traced=("double",)),
    "fp32": NumberFormat(
        4,
        "float32",
        traced=("float",),
        holds_parameters=True,
        holds_moments=True,
        has_peak=True,
        unit_roundoff=2.0**-24,
        losses_within=1e-5,
        norms_within=1.0003,
        adamw_within=1.1,
    ),
    # Numbers of fp32, whose products round their operands.
    "tf32": NumberFormat(4, has_peak=True),
    "bf16": NumberFormat(
        2,
        "bfloat16",
        traced=("c10::BFloat16",),
        holds_parameters=True,
        holds_moments=True,
        has_peak=True,
        fused_attention=True,
        unit_roundoff=2.0**-8,
    ),
    # Its smallest normal number is 2^-14, so that losses in it are scaled.
    "fp16": NumberFormat(
        2,
        "float16",
        traced=("c10::Half",),
        holds_parameters=True,
        has_peak=True,
        fused_attention=True,
        unit_roundoff=2.0**-11,
    ),
    "fp8": NumberFormat(
        1,
        traced=("c10::Float8_e4m3fn", "c10::Float8_e5m2", "c10::Float8_e4m3fnuz", "c10::Float8_e5m2fnuz"),
        has_peak=True,
    ),
    # Blocks of 256 have an fp32 scale each, as in bitsandbytes (arXiv 2110.02861, section 2.1).
    "int8": NumberFormat(1, scale_bytes=4 / 256, holds_moments=True),
}
_TAKEN = frozenset(name for name, row in FORMATS.items() if row.holds_moments or row.has_peak)
# What parameters are trained in, and what is measured, if nobody says otherwise.
SINGLE, HALF = "fp32", "bf16"
# Gradients in it need a scaled loss.
SCALED = "fp16"


def format_of(name: str) -> NumberFormat:
    """Return the row of this name, of another package's where it has one; raises KeyError for an unknown name."""
    if name not in _TAKEN and name in _outside():
        found: NumberFormat = plugins.load(_outside()[name], NumberFormat)
        return found
    return FORMATS[name]


def bytes_of(name: str) -> int:
    """Return the bytes of a number, without those of scales."""
    return format_of(name).bytes


def bytes_of_moment(name: str) -> float:
    """Return the bytes of a number, those of its scale included."""
    row = format_of(name)
    return row.bytes + row.scale_bytes if row.scale_bytes else row.bytes


def of_parameters() -> tuple[str, ...]:
    """Return the names of the formats that parameters may be in; those of other packages are not loaded for it."""
    return (*(name for name, row in FORMATS.items() if row.holds_parameters), *_outside())


def of_moments() -> tuple[str, ...]:
    """Return the names of the formats that an optimizer may keep its moments in."""
    return (*(name for name, row in FORMATS.items() if row.holds_moments), *_outside())


def of_peaks() -> tuple[str, ...]:
    """Return the names of the formats that hardware may have a peak in."""
    return (*(name for name, row in FORMATS.items() if row.has_peak), *_outside())


@cache
def by_trace() -> dict[str, str]:
    """Return the names of formats by those that torch's profiler writes."""
    return {traced: name for name in (*FORMATS, *_outside()) for traced in format_of(name).traced}


def _outside() -> dict[str, EntryPoint]:
    return plugins.points(plugins.DTYPES, _TAKEN)
