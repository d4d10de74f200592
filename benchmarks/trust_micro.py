"""How often the check of a microbenchmark is wrong: of kernels that are right, and of products with rows left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.figure import Figure
from benchmarks.rates import rate
from llmexp.launchers.micro.case import CasePlace
from llmexp.launchers.micro.worker import maker
from llmexp.micro.families.base import MicroPoint
from llmexp.registry import get_family

HEADS = {"batch": 1, "heads": 4, "kv_heads": 2, "seq_len": 96, "head_dim": 32}
ROWS = 256
PRODUCT = ("gemm", "gemm", {"m": ROWS, "n": 32, "k": 512})
KERNELS = (
    PRODUCT,
    *(("attention", f"{kernel}_{way}", HEADS) for kernel in ("flash", "unfused") for way in ("forward", "backward")),
    ("operators", "rms_norm", {"tokens": 64, "hidden": 256}),
    ("operators", "rope", {"tokens": 64, "heads": 4, "kv_heads": 2, "head_dim": 32}),
    ("operators", "softmax", {"tokens": 64, "heads": 4}),
    ("operators", "cross_entropy", {"tokens": 64, "vocab": 256}),
)
# A check looks at one row of each sixteenth, so that it sees an eighth of the rows in any place.
SEEN, SEEN_AT_TIMES = ROWS // 8, (ROWS // 64, 1)


def micro_verdicts(folder: Path, tries: int) -> Iterator[Figure]:
    """Yield the rates in percent; kernels are those of this machine's CPU."""
    place = CasePlace(torch.device("cpu"), 0, 1, 0, folder)
    for dtype in ("fp32", "bf16"):
        points = [MicroPoint(family=family, kind=kind, dtype=dtype, sizes=sizes) for family, kind, sizes in KERNELS]
        called = sum(bool(_wrong(point, place, seed)) for point in points for seed in range(tries))
        yield rate(f"right kernel called wrong: {dtype}", called, tries * len(points), limit=0.1)
    product = MicroPoint(family=PRODUCT[0], kind=PRODUCT[1], dtype="bf16", sizes=PRODUCT[2])
    for rows in (SEEN, *SEEN_AT_TIMES):
        with patch.object(torch, "mm", _without(rows)):
            found = sum(bool(_wrong(product, place, seed)) for seed in range(tries))
        floor = 99.0 if rows == SEEN else None
        yield rate(f"product without {rows} of {ROWS} rows found: bf16", found, tries, floor=floor)


def _wrong(point: MicroPoint, place: CasePlace, seed: int) -> str:
    torch.manual_seed(seed)
    return maker(get_family(point.family))(point, place).wrong()


def _without(rows: int) -> Callable[..., Tensor]:
    """Return a product that leaves out so many rows, in another place each time."""
    multiply = torch.mm

    def broken(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        multiply(a, b, out=out)
        first = int(torch.randint(len(out) - rows + 1, ()))
        out[first : first + rows] = 0
        return out

    return broken
