"""What the signs and headings of a table mean, as lines below it."""

from __future__ import annotations

from llmexp.reference import SOURCE
from llmexp.report.conclusion import conclusion
from llmexp.report.control import control_lines
from llmexp.report.converged import NAIVE, convergence_legend
from llmexp.report.fairness import fairness
from llmexp.report.flops_column import flops_legend
from llmexp.report.memory_column import MEMORY_WORDS, memory_header, memory_kinds, memory_unit
from llmexp.report.row import OOM
from llmexp.report.scaling_series import scaling_legend
from llmexp.report.signs import PARTLY_TRAINED, UNKNOWN, UNSTABLE, doubt_sign, within_run
from llmexp.report.table import Report


def legend(report: Report) -> list[str]:
    """What the signs and headings of this table mean, only those that occur, and what it concludes."""
    lines = _of_speed(report) | _of_costs(report) | _of_rows(report) | _of_paper(report)
    return [
        *(line for line, applies in lines.items() if line and applies),
        *conclusion(report.rows),
        *control_lines(report.rows),
        *convergence_legend(list(report.converged.values())),
        *scaling_legend(report.series),
        *fairness(report.rows),
    ]


def _of_speed(report: Report) -> dict[str, bool]:
    """Lines by whether they apply, as of all the functions below."""
    rates = [metric for row in report.rows if (metric := row.metric("tokens_per_s"))]
    doubts = {doubt_sign(row) for row in report.rows}
    return {
        "tokens/s: positions a second, padding included, over all ranks": bool(rates),
        "real tokens/s: the same without padding": report.has_padding,
        "±: standard deviation between repeats": any(rate.std_between_repeats is not None for rate in rates),
        "± … w: standard deviation of the steps within the run, there being one repeat": any(within_run(rate) for rate in rates),
        f"{UNSTABLE} unstable: not to be relied on, for the reasons in its note": UNSTABLE in doubts,
        f"{UNKNOWN} not known whether to be relied on: what is missing to judge it stands in its note": UNKNOWN in doubts,
    }


def _of_costs(report: Report) -> dict[str, bool]:
    unit, divisor = memory_unit(report)
    kinds = "; ".join(MEMORY_WORDS[kind] for kind in memory_kinds(report))
    return {
        f"{memory_header(report)}: {kinds}; {unit} = 10^{len(str(int(divisor))) - 1} bytes": bool(kinds),
        "x Naive: tokens/s over those of Naive with the same work in this table, ± half its 95 % interval by the repeats": any(
            report.over_naive(row) for row in report.rows
        ),
        flops_legend(report): True,
        f"tokens/J: tokens/s over the mean power of what was read: {', '.join(_powered(report))}": bool(_powered(report)),
        f"of the time that these runs held their devices, {report.useful_fraction or 0:.1%} went into measured steps": bool(report.useful_fraction),
        f"no MFU: {'; '.join(_without_flops(report))}": bool(_without_flops(report)),
    }


def _of_rows(report: Report) -> dict[str, bool]:
    rows = report.rows
    return {
        "; ".join(f"runtime {runtime}: {versions}" for runtime, versions in report.versions.items()): "runtime" not in report.shared,
        f"of runs that differ in batch alone, the smallest and the largest measured; {report.left_out} others left out": bool(report.left_out),
        "epoch: one pass over all records of the data, at these samples/s": any(row.finetuned("epoch_time_s") for row in rows),
        "trained M: millions of parameters that train": any(row.finetuned("trainable_parameters") for row in rows),
        "Naive: Full-FT, all parameters train": any(row.finetuned("tokens_per_s") and row.method == NAIVE for row in rows),
        "peak in: the phase of the allocator's peak": any(row.peak_phase for row in rows),
        "stack: where it is another one, so were code, libraries or device; rerun=stale measures such runs again": report.has_several_stacks,
        _cut_records(report): True,
    }


def _of_paper(report: Report) -> dict[str, bool]:
    papers = [row.paper for row in report.rows if row.paper]
    partly = any(row.partly_trained for row in report.rows)
    tables = " and ".join(sorted({paper.table for paper in papers}))
    return {
        "-: out of memory": any(row.state == OOM for row in report.rows) or any(paper.oom for paper in papers),
        f"{PARTLY_TRAINED} not full pre-training: 4-bit weights stay frozen, only embeddings, norms and head train": partly,
        f"paper: {SOURCE}, table {tables}, 8 GPUs, its GB read as 10^9 bytes; x paper: ours over the paper's": bool(papers),
    }


def _cut_records(report: Report) -> str:
    """How many records were longer than seq_len; empty where none was."""
    found = [row.result.what_ran for row in report.rows if row.result and row.metric("tokens_per_s")]
    counts = [(ran.get("data_cut_records", 0), ran.get("data_left_out_records", 0), ran.get("data_read_records", 0)) for ran in found]
    said = [f"{cut} of {read} cut, {left_out} left out" for cut, left_out, read in sorted(set(counts)) if cut or left_out]
    return f"records longer than seq_len: {'; '.join(said)}" if said else ""


def _powered(report: Report) -> list[str]:
    """What the energy counters of rows with tokens/J cover."""
    results = [row.result for row in report.rows if row.result and row.metric("tokens_per_joule")]
    return sorted({str(name) for result in results for name in result.what_ran.get("energy_counters") or ()})


def _without_flops(report: Report) -> list[str]:
    """Why the FLOPs of measured programs are not known."""
    results = [row.result for row in report.rows if row.result and row.metric("tokens_per_s")]
    return sorted({str(result.what_ran["no_flops"]) for result in results if "no_flops" in result.what_ran})
