"""The legend: lines below a table that explain its signs and headings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmexp.report.control import control_lines
from llmexp.report.legend import applying, how_measured, legend_of_runs, legend_of_signs, small
from llmexp.report.signs import PARTLY_TRAINED
from llmexp.training.failure_metrics import FAILURE_METRICS
from llmexp.training.outside_metrics import outside_metrics
from llmexp.training.report.converged import NAIVE, convergence_legend
from llmexp.training.report.fairness import fairness
from llmexp.training.report.flops_column import flops_legend
from llmexp.training.report.memory_column import MEMORY_WORDS, memory_header, memory_kinds, memory_unit
from llmexp.training.report.predicted_column import PREDICTED_LEGEND
from llmexp.training.report.scaling_series import scaling_legend

if TYPE_CHECKING:
    from llmexp.training.report.section import TrainingSection

_PARTLY = f"{PARTLY_TRAINED} not full pre-training: 4-bit weights stay frozen, only embeddings, norms and head train"


def legend(report: TrainingSection) -> list[str]:
    """Return what the signs and headings that occur in this table mean, and what holds for all its runs."""
    return [
        *applying(_of_speeds(report) | _of_failures(report)),
        *legend_of_signs(report.rows),
        *applying(_of_costs(report) | _of_rows(report)),
        *report.beside.legend("signs"),
        *applying({_PARTLY: any(row.partly_trained for row in report.rows)}),
        *applying(_of_packages(report)),
        *report.beside.legend("values"),
        *legend_of_runs(report.rows, report.shared),
        *control_lines(report.rows),
        *convergence_legend(list(report.converged.values())),
        *scaling_legend(report.series),
        *report.beside.legend("scaling"),
        *fairness(report.rows),
    ]


def explained(report: TrainingSection) -> list[str]:
    """Return the lines of the legend that say what headings mean, and how the runs were measured."""
    headings = _of_speeds(report) | _of_failures(report) | _of_costs(report) | _of_packages(report)
    return [*applying(headings), *report.beside.legend("values"), *how_measured(report.rows)]


def _of_speeds(report: TrainingSection) -> dict[str, bool]:
    return {
        "tokens/s: positions a second, padding included, over all ranks": any(row.rate for row in report.rows),
        "real tokens/s: the same without padding": report.has_padding,
    }


def _of_failures(report: TrainingSection) -> dict[str, bool]:
    """Say what the columns of runs mean whose replicas die."""
    return {
        f"{spec.column.header}: {small(spec.help)}": any(row.metric(spec.name) for row in report.rows)
        for spec in FAILURE_METRICS.values()
        if spec.column
    }


def _of_packages(report: TrainingSection) -> dict[str, bool]:
    """Say what the columns of other packages show."""
    return {
        f"{spec.column.header}: {small(spec.help)}": any(row.metric(spec.name) for row in report.rows)
        for spec in outside_metrics()
        if spec.column
    }


def _of_costs(report: TrainingSection) -> dict[str, bool]:
    rows = report.rows
    unit, divisor = memory_unit(report)
    kinds = "; ".join(MEMORY_WORDS[kind] for kind in memory_kinds(report))
    return {
        f"{memory_header(report)}: {kinds}; {unit} = 10^{len(str(int(divisor))) - 1} bytes": bool(kinds),
        "x Naive: tokens/s over those of Naive with the same work in this table, ± half its 95 % interval by "
        "the repeats": any(report.over_naive(row) for row in report.rows),
        f"x {report.first_engine}: tokens/s over those of {report.first_engine} with the same method and work": any(
            report.over_first_engine(row) for row in report.rows
        ),
        PREDICTED_LEGEND: any(row.over_predicted for row in report.rows),
        flops_legend(report): True,
        f"tokens/J: tokens/s over the mean power of what was read: {', '.join(_powered(report))}": bool(
            _powered(report)
        ),
        "epoch: one pass over all records of the data, at these samples/s": any(
            row.finetuned("epoch_time_s") for row in rows
        ),
        "trained M: millions of parameters that train": any(row.finetuned("trainable_parameters") for row in rows),
        "Naive: Full-FT, all parameters train": any(
            row.finetuned("tokens_per_s") and row.method == NAIVE for row in rows
        ),
        "peak in: the phase of the allocator's peak": any(row.peak_phase for row in rows),
    }


def _of_rows(report: TrainingSection) -> dict[str, bool]:
    return {
        f"of runs that differ in batch alone, the smallest and the largest measured; {report.left_out} others "
        "left out": bool(report.left_out),
        f"no MFU: {'; '.join(_without_flops(report))}": bool(_without_flops(report)),
        _cut_records(report): True,
    }


def _cut_records(report: TrainingSection) -> str:
    """Say how many records were longer than seq_len; empty where none was."""
    found = [row.result.what_ran for row in report.rows if row.result and row.rate]
    counts = [
        (ran.get("data_cut_records", 0), ran.get("data_left_out_records", 0), ran.get("data_read_records", 0))
        for ran in found
    ]
    said = [
        f"{cut} of {read} cut, {left_out} left out" for cut, left_out, read in sorted(set(counts)) if cut or left_out
    ]
    return f"records longer than seq_len: {'; '.join(said)}" if said else ""


def _powered(report: TrainingSection) -> list[str]:
    """Return what the energy counters of rows with tokens/J cover."""
    results = [row.result for row in report.rows if row.result and row.metric("tokens_per_joule")]
    return sorted({str(name) for result in results for name in result.what_ran.get("energy_counters") or ()})


def _without_flops(report: TrainingSection) -> list[str]:
    """Return the reasons why the FLOPs of measured programs are not known."""
    results = [row.result for row in report.rows if row.result and row.rate]
    return sorted({str(result.what_ran["no_flops"]) for result in results if "no_flops" in result.what_ran})
