"""Table XII of the paper beside products of the same sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmexp.micro.report.units import in_seconds
from llmexp.paper.printed import SOURCE, PaperGemm, paper_gemm
from llmexp.record.digits import three_digits
from llmexp.record.result import ResultPoint
from llmexp.report.columns import Column
from llmexp.report.row import Row

# Table XII is of this machine.
HARDWARE = "a800"
PAPER_TIME = "paper, A800"


def paper_columns(points: Sequence[ResultPoint], row: Row) -> Iterator[Column]:
    """Yield the paper's time and percentage of the peak, and on the same hardware how many times ours is."""
    printed = [_printed(point) for point in points]
    if not any(printed):
        return
    yield Column(PAPER_TIME, tuple(in_seconds(each.time_s) if each else "" for each in printed))
    yield Column("% of peak there", tuple(f"{each.peak_percent:.1f}" if each else "" for each in printed))
    if row.hardware == HARDWARE:
        yield Column("time over paper", tuple(_over(point, each) for point, each in zip(points, printed, strict=True)))


def paper_legend(points: Sequence[ResultPoint]) -> Iterator[str]:
    """Say where the paper's figures are from, and what is odd about them."""
    found = [printed for point in points if (printed := _printed(point))]
    if found:
        yield f"paper: {SOURCE}, table XII"
    yield from dict.fromkeys(f"paper's {in_seconds(each.time_s)}: {each.note}" for each in found if each.note)


def _printed(point: ResultPoint) -> PaperGemm | None:
    params = point.params
    if params["family"] != "gemm" or params["dtype"] != "bf16":
        return None
    return paper_gemm(params["m"], params["n"], params["k"])


def _over(point: ResultPoint, printed: PaperGemm | None) -> str:
    ours = point.metrics.get("time_s")
    return three_digits(ours.mean / printed.time_s, ".2f") if ours and printed else ""
