"""Matrix products and attention of a trace as tables: the rates they reached, and their shares of the peaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llmexp.analysis.step_limits import flops_limit
from llmexp.record.breakdown import Breakdown
from llmexp.record.counted import AttentionTime, CountedPeaks, GemmTime
from llmexp.record.digits import rounded, three_digits
from llmexp.report.breakdown.kernels import MOST_KERNELS
from llmexp.report.breakdown.parts import Profiled
from llmexp.report.columns import Column, ReportTable

Counted = GemmTime | AttentionTime
GEMM_SIZES = ("batch", "m", "n", "k", "calls")
ABOVE = "!"
_ABOVE_COMPUTE = f"{ABOVE} above the peak: the numbers had fewer digits than the trace says, or the peak is wrong"


def rate_tables(run: Profiled) -> Iterator[ReportTable]:
    """Yield the costliest products and the costliest attention of the first rank, where the trace has shapes."""
    rank, calibration = run.breakdown.ranks[0], run.breakdown.calibration
    rates = _Rates(run.breakdown.peaks, calibration.limits if calibration else {})
    legends = [_coverage(rank), "GB/s: inputs and results moved once each, the least possible"]
    if products := rank.gemms[:MOST_KERNELS]:
        sizes = [Column(size, tuple(f"{getattr(each, size):,}" for each in products)) for size in GEMM_SIZES]
        columns = [*_names(products), *sizes, *rates.columns(products)]
        title = f"costliest matrix products of {_when(rank)}, batch x [m, k] by [k, n]"
        yield ReportTable(title, columns, [*legends, *rates.remarks(products)])
    if fused := rank.attention[:MOST_KERNELS]:
        columns = [*_names(fused), *_attention_sizes(fused), *rates.columns(fused)]
        told = "causal: half of the pairs of queries and keys count; backward: five products, where forward has two"
        packed = ["~ a mean of packed sequences, whose pairs are at least those of equal lengths"]
        packed = packed if any(each.equal_lengths for each in fused) else []
        title = f"costliest attention in one kernel, of {_when(rank)}"
        yield ReportTable(title, columns, [told, *packed, *(legends if not products else []), *rates.remarks(fused)])


def _when(rank: Breakdown) -> str:
    return f"{rank.steps} profiled step{'s' * (rank.steps > 1)}" if rank.steps else "the trace"


def _names(shown: Sequence[Counted]) -> list[Column]:
    return [
        Column("operator", tuple(_operator(each) for each in shown), left=True),
        Column("dtype", tuple(each.dtype or "?" for each in shown), left=True),
    ]


def _operator(counted: Counted) -> str:
    return counted.operator.removeprefix("aten::").removeprefix("_scaled_dot_product_")


def _attention_sizes(shown: Sequence[AttentionTime]) -> list[Column]:
    return [
        Column("batch", tuple(f"{each.batch:,}" for each in shown)),
        Column("heads", tuple(_heads(each) for each in shown)),
        Column("queries", tuple(_length(each.queries, each) for each in shown)),
        Column("keys", tuple(_length(each.keys, each) for each in shown)),
        Column("dim", tuple(f"{each.head_dim:,}" for each in shown)),
        Column("causal", tuple("yes" if each.causal else "no" for each in shown), left=True),
        Column("calls", tuple(f"{each.calls:,}" for each in shown)),
    ]


def _heads(attention: AttentionTime) -> str:
    grouped = attention.kv_heads != attention.heads
    return f"{attention.heads:,}" + f" on {attention.kv_heads:,}" * grouped


def _length(tokens: float, attention: AttentionTime) -> str:
    return f"~{tokens:,.1f}" if attention.equal_lengths else f"{tokens:,.0f}"


def _coverage(rank: Breakdown) -> str:
    share = 100 * rank.counted_ns / max(1, rank.compute_ns)
    rate = rank.counted_flops / max(1, rank.counted_ns) / 1e3
    return (
        f"the trace tells the shapes of {share:.1f}% of the computing time, at {rounded(rate)} TFLOP/s; the rest "
        "multiplies no matrices, or no operator tells its shapes, as with kernels that torch.compile writes"
    )


class _Rates:
    """Columns of rates, with shares of the hardware's peaks and of the limits that task=micro measured."""

    def __init__(self, peaks: CountedPeaks, limits: Mapping[str, float]) -> None:
        self._peaks, self._limits = peaks, limits

    def columns(self, shown: Sequence[Counted]) -> list[Column]:
        flops = [each.flops_per_s for each in shown]
        moved = [each.bytes_per_s for each in shown]
        columns = [
            Column("ms", tuple(three_digits(each.work_ns / 1e6, ",.3f") for each in shown)),
            Column("TFLOP/s", tuple(_rate(value, 1e12) for value in flops)),
            _shares("% peak", self._of_peak_flops(shown)),
            _shares("% limit", [_over(each.flops_per_s, flops_limit(each, self._limits)) for each in shown]),
            Column("GB/s", tuple(_rate(value, 1e9) for value in moved)),
            _shares("% peak", self._of_peak_bytes(shown)),
            _shares("% limit", [_over(each.bytes_per_s, self._limits.get("memory_bytes_per_s")) for each in shown]),
        ]
        return [column for column in columns if any(column.cells)]

    def remarks(self, shown: Sequence[Counted]) -> list[str]:
        """Say what limits are, and what a share above 100 % means."""
        above = any((share or 0) > 1 for share in self._of_peak_flops(shown))
        cached = any((share or 0) > 1 for share in self._of_peak_bytes(shown))
        limits = ["% limit: of the highest rate that task=micro reached on this machine"] * bool(self._limits)
        return limits + [_ABOVE_COMPUTE] * above + [f"{ABOVE} of GB/s: the inputs were in a cache"] * cached

    def _of_peak_flops(self, shown: Sequence[Counted]) -> list[float | None]:
        return [_over(each.flops_per_s, self._peaks.flops_per_s.get(each.dtype)) for each in shown]

    def _of_peak_bytes(self, shown: Sequence[Counted]) -> list[float | None]:
        return [_over(each.bytes_per_s, self._peaks.bytes_per_s) for each in shown]


def _shares(header: str, shares: Sequence[float | None]) -> Column:
    return Column(header, tuple(_share(share) for share in shares))


def _over(value: float | None, limit: float | None) -> float | None:
    return value / limit if value is not None and limit else None


def _rate(value: float | None, unit: float) -> str:
    return "" if value is None else rounded(value / unit)


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}{ABOVE * (share > 1)}"
