"""The columns of the table as text, and the legend and notes that belong to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llmexp.record.result import Metric
from llmexp.reference import SOURCE
from llmexp.report.converged import DIVERGED, convergence_legend
from llmexp.report.fairness import fairness
from llmexp.report.row import OOM, Row
from llmexp.report.scaling_series import KINDS, Kind, paper_of, scaling_legend
from llmexp.report.table import Report

PARTLY_TRAINED = "†"
UNSTABLE = "!"
MEMORY_WORDS = {
    "peak_allocated_bytes": "peak allocated on the device, largest rank",
    "training_state_bytes": "parameters, gradients and optimizer state on the largest rank's device",
}
# What each cell of Converged.cells stands under, and when it goes where there is no room.
LOSS_COLUMNS = (("final loss", 9), ("loss over baseline", 9), ("s to loss", 9))
MEMORY_HEADERS = {"peak_allocated_bytes": "peak", "training_state_bytes": "state"}


@dataclass(frozen=True)
class Column:
    """One column: its heading with the unit, its cells, and which goes first where there is no room (0: never)."""

    header: str
    cells: tuple[str, ...]
    left: bool = False
    dispensable: int = 0


def columns(report: Report) -> list[Column]:
    """All columns that say something about these rows, in the paper's order."""
    unit, divisor = memory_unit(report)
    notes = notes_of(report)

    def column(header: str, cell: Callable[[Row], str], dispensable: int = 0) -> Column:
        return Column(header, tuple(cell(row) for row in report.rows), dispensable=dispensable)

    facets = [name for name in _facets(report) if name not in ("task", "model")]
    found = [
        Column("model", tuple(row.model for row in report.rows), left=True),
        Column("method", tuple(row.method + PARTLY_TRAINED * row.partly_trained for row in report.rows), left=True),
        *(Column(name, tuple(row.work[name] for row in report.rows), left=True) for name in facets),
        Column("asked for", tuple(report.own_words[row.plan["id"]] for row in report.rows), left=True, dispensable=10),
        column("tokens/s", lambda row: _speed(row, notes)),
        column(memory_header(report), lambda row: _memory(row, divisor)),
        column("step time s", lambda row: _mean(row.metric("step_time_s"), ".3f"), 4),
        column("x Naive", lambda row: _number(report.over_naive(row), ".2f"), 5),
        *(column(f"{kind} scaling %", partial(_efficiency, report, kind), 8) for kind in KINDS),
        column("paper scaling %", lambda row: _paper_efficiency(report, notes, row), 8),
        *(column(header, partial(_loss, report, notes, place), rank) for place, (header, rank) in enumerate(LOSS_COLUMNS)),
        column("MFU %", lambda row: _mean(row.metric("mfu"), ".1f", 100), 6),
        column("TFLOP/s per device", lambda row: _mean(row.metric("tflops_per_s_per_gpu"), ".2f"), 2),
        column("tokens/J", lambda row: _mean(row.metric("tokens_per_joule"), ".2f"), 1),
        column("paper tokens/s", lambda row: _paper_speed(row, notes), 8),
        column("x paper", lambda row: _number(row.speed_over_paper, ".2f"), 7),
        column(f"paper {unit}", lambda row: _paper_memory(row, divisor), 3),
        column(f"{unit} x paper", lambda row: _number(row.memory_over_paper, ".2f"), 1),
    ]
    return [column for column in found if not column.dispensable or any(column.cells)]


def memory_unit(report: Report) -> tuple[str, float]:
    """One unit for all rows: GB, or MB where no row reaches one GB."""
    largest = max((row.memory[1] for row in report.rows if row.memory), default=1e9)
    return ("GB", 1e9) if largest >= 1e9 else ("MB", 1e6)


def memory_header(report: Report) -> str:
    """What kind of memory, in which unit."""
    kinds = _memory_kinds(report)
    return f"{MEMORY_HEADERS[kinds[0]] if len(kinds) == 1 else 'memory'} {memory_unit(report)[0]}"


def legend(report: Report) -> list[str]:
    """What the signs and headings of this table mean; only those that occur."""
    unit, divisor = memory_unit(report)
    rates = [metric for row in report.rows if (metric := row.metric("tokens_per_s"))]
    papers = [row.paper for row in report.rows if row.paper]
    kinds = "; ".join(MEMORY_WORDS[kind] for kind in _memory_kinds(report))
    lines = {
        "tokens/s: positions a second, padding included, over all ranks": bool(rates),
        "±: standard deviation between repeats": any(rate.std_between_repeats is not None for rate in rates),
        "± … w: standard deviation of the steps within the run, there being one repeat": any(_within(rate) for rate in rates),
        f"{UNSTABLE} unstable: not to be relied on, for the reasons in its note": any(row.unstable for row in report.rows),
        f"{memory_header(report)}: {kinds}; {unit} = 10^{len(str(int(divisor))) - 1} bytes": bool(kinds),
        "x Naive: tokens/s over those of Naive with the same work in this table": any(report.over_naive(row) for row in report.rows),
        f"tokens/J: tokens/s over the mean power of what was read: {', '.join(_powered(report))}": bool(_powered(report)),
        f"of the time that these runs held their devices, {report.useful_fraction or 0:.1%} went into measured steps": bool(report.useful_fraction),
        f"no MFU: {'; '.join(_without_flops(report))}": bool(_without_flops(report)),
        "; ".join(f"runtime {runtime}: {versions}" for runtime, versions in report.versions.items()): "runtime" not in report.shared,
        f"of runs that differ in batch alone, the smallest and the largest measured; {report.left_out} others left out": bool(report.left_out),
        "-: out of memory": any(row.state == OOM for row in report.rows) or any(paper.oom for paper in papers),
        f"{PARTLY_TRAINED} not full pre-training: 4-bit weights stay frozen, only embeddings, norms and head train": any(
            row.partly_trained for row in report.rows
        ),
        f"paper: {SOURCE}, table {' and '.join(sorted({paper.table for paper in papers}))}, 8 GPUs, its GB read as 10^9 bytes; "
        "x paper: ours over the paper's": bool(papers),
    }
    return [
        *(line for line, applies in lines.items() if applies),
        *convergence_legend(list(report.converged.values())),
        *scaling_legend(report.series),
        *fairness(report.rows),
    ]


def notes_of(report: Report) -> list[str]:
    """Why rows have no figures or unstable ones, and what is doubtful in the paper's; the table refers to them by number from 1."""
    found = [note for row in report.rows for note in (_ending_note(row), row.unstable, _paper_note(row), _scaling_note(row)) if note]
    return list(dict.fromkeys(found))


def _facets(report: Report) -> list[str]:
    return [name for name in (report.rows[0].work if report.rows else {}) if name not in report.shared]


def _memory_kinds(report: Report) -> list[str]:
    return sorted({row.memory[0] for row in report.rows if row.memory})


def _powered(report: Report) -> list[str]:
    """What the energy counters of rows with tokens/J cover."""
    results = [row.result for row in report.rows if row.result and row.metric("tokens_per_joule")]
    return sorted({str(name) for result in results for name in result.what_ran.get("energy_counters") or ()})


def _without_flops(report: Report) -> list[str]:
    """Why the FLOPs of measured programs are not known."""
    results = [row.result for row in report.rows if row.result and row.metric("tokens_per_s")]
    return sorted({str(result.what_ran["no_flops"]) for result in results if "no_flops" in result.what_ran})


def _speed(row: Row, notes: list[str]) -> str:
    rate = row.metric("tokens_per_s")
    if rate:
        sign = f" {UNSTABLE}{_mark(row.unstable, notes)}" if row.unstable else ""
        return f"{rate.mean:,.1f}{deviation(rate)}{sign}{_mark(_ending_note(row), notes)}"
    return "-" if row.state == OOM else row.state + _mark(_ending_note(row), notes)


def deviation(metric: Metric) -> str:
    """The deviation between repeats; marked w, the one within the run where there is no other."""
    if metric.std_between_repeats is not None:
        return f" ± {metric.std_between_repeats:,.1f}"
    return f" ± {metric.std_within_run:,.1f} w" if _within(metric) else ""


def _within(metric: Metric) -> bool:
    return metric.std_between_repeats is None and metric.std_within_run is not None


def _memory(row: Row, divisor: float) -> str:
    if row.memory:
        return f"{row.memory[1] / divisor:,.1f}"
    return "-" if row.state == OOM else ""


def _efficiency(report: Report, kind: Kind, row: Row) -> str:
    share = report.efficiency(row, kind)
    return _number(None if share is None else 100 * share, ".1f")


def _paper_efficiency(report: Report, notes: list[str], row: Row) -> str:
    paper = paper_of(row) if report.efficiency(row, "weak") is not None else None
    return _number(paper.percent, ".1f") + _mark(_scaling_note(row), notes) if paper else ""


def _loss(report: Report, notes: list[str], place: int, row: Row) -> str:
    one = report.converged.get(row.plan["id"])
    if not one:
        return ""
    cell = one.cells[place]
    return cell + _mark(_ending_note(row), notes) if cell == DIVERGED else cell


def _paper_speed(row: Row, notes: list[str]) -> str:
    if not row.paper:
        return ""
    return _number(row.paper.tokens_per_s, ",.1f") + _mark(_paper_note(row), notes) if not row.paper.oom else "-"


def _paper_memory(row: Row, divisor: float) -> str:
    if not row.paper:
        return ""
    return "-" if row.paper.memory_bytes is None else f"{row.paper.memory_bytes / divisor:,.1f}"


def _ending_note(row: Row) -> str:
    return "" if row.state == OOM else row.reason


def _paper_note(row: Row) -> str:
    return f"paper, table {row.paper.table}: {row.paper.note}" if row.paper and row.paper.doubtful else ""


def _scaling_note(row: Row) -> str:
    paper = paper_of(row)
    return f"paper, figure 4: {paper.note}" if paper and paper.note else ""


def _mark(note: str, notes: list[str]) -> str:
    return f" ({notes.index(note) + 1})" if note else ""


def _mean(metric: Metric | None, form: str, factor: float = 1) -> str:
    return _number(metric.mean * factor if metric else None, form)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
