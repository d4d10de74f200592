"""The report as Markdown for people and as CSV for programs."""

from __future__ import annotations

import csv
import io
from typing import Any

from llmexp.record.reading import as_cell, plain
from llmexp.record.redact import redact, redact_all
from llmexp.record.result import Metric
from llmexp.report.columns import columns
from llmexp.report.legend import legend
from llmexp.report.notes import notes_of
from llmexp.report.provenance import provenance
from llmexp.report.ratio import over_paper
from llmexp.report.row import Row
from llmexp.report.scaling_series import KINDS
from llmexp.report.table import Report

# In analysis.metrics there is one function for each; a test holds the two together.
METRICS = (
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "real_tokens_per_s",
    "samples_per_s",
    "epoch_time_s",
    "epoch_usd",
    "measured_steps",
    "timed_share_of_wall",
    "step_time_s",
    "forward_time_s",
    "backward_time_s",
    "optimizer_time_s",
    "tflops_per_s_per_gpu",
    "mfu",
    "mfu_full_attention",
    "useful_mfu",
    "hfu",
    "usd_per_million_tokens",
    "mean_power_w",
    "tokens_per_joule",
    "peak_allocated_bytes",
    "peak_allocated_rank0_bytes",
    "peak_reserved_bytes",
    "peak_device_used_bytes",
    "forward_peak_bytes",
    "backward_peak_bytes",
    "optimizer_peak_bytes",
    "peak_rss_bytes",
    "parameter_bytes",
    "parameter_host_bytes",
    "gathered_parameter_bytes",
    "gradient_bytes",
    "gradient_host_bytes",
    "optimizer_bytes",
    "optimizer_host_bytes",
    "optimizer_state_bytes_per_parameter",
    "training_state_bytes",
    "training_state_host_bytes",
    "parameters",
    "trainable_parameters",
    "first_loss",
    "final_loss",
    "trained_tokens",
    "smoothed_final_loss",
    "time_to_first_step_s",
)


def markdown(report: Report) -> str:
    """A table whose last column repeats the run, then the legend, where and when it was measured, and the numbered notes."""
    shown = columns(report)
    headers = [column.header for column in shown] + ["command"]
    rules = ["---" if column.left else "---:" for column in shown] + ["---"]
    body = [[*cells, f"`{row.command}`"] for row, *cells in zip(report.rows, *(column.cells for column in shown), strict=True)]
    lines = [f"## {report.title or 'No runs'}", "", *(_line(cells) for cells in (headers, rules, *body)), ""]
    lines += [f"- {line}" for line in (*legend(report), *provenance(report))]
    lines += ["", *(f"({number}) {note}  " for number, note in enumerate(notes_of(report), 1))]
    lines += [f"unreadable: {reason}  " for reason in report.unreadable]
    return redact(plain("\n".join(lines))).rstrip() + "\n"


def comma_separated(report: Report) -> str:
    """A header and one line a run, in SI units and bytes; a metric has three columns: mean, deviation between repeats and within the run.

    tokens_per_s_low and tokens_per_s_high are the ends of its 95 % confidence interval; clocks are those of the GPU with the lowest mean.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(csv_columns())
    rows = [list(map(as_cell, _values(row, report))) for row in report.rows]
    together = str(rows)  # cell by cell takes long, and is seldom needed
    writer.writerows(rows if redact(together) == together else redact_all(rows))
    return text.getvalue()


def csv_columns() -> list[str]:
    """The names of the CSV's columns, which don't depend on the runs."""
    metrics = [name + suffix for name in METRICS for suffix in ("", "_std_between_repeats", "_std_within_run")]
    return [*IDENTITY, *STABILITY, *metrics, *COMPARISON, "command"]


IDENTITY = (
    *("sweep", "id", "stack", "state", "reason", "evidence", "task", "engine", "model", "method", "hardware", "runtime", "precision", "world_size"),
    *("batch_micro", "batch_accumulation", "batch_global", "seq_len", "repeats", "full_pretraining"),
)
STABILITY = (
    *("stability", "stability_reasons", "tokens_per_s_low", "tokens_per_s_high", "interval_source"),
    *("beside", "sm_clock_mean_megahertz", "sm_clock_lowest_megahertz", "sm_clock_card_megahertz"),
)
COMPARISON = (
    *("weak_scaling_efficiency", "strong_scaling_efficiency", "baseline_id", "loss_over_baseline", "seconds_to_loss"),
    *("speed_over_naive", "speed_over_naive_low", "speed_over_naive_high"),
    *("paper_table", "paper_oom", "paper_tokens_per_s", "tokens_per_s_over_paper", "paper_memory_bytes"),
    *("peak_allocated_over_paper", "paper_note"),
)


def _values(row: Row, report: Report) -> list[Any]:
    metrics = [value for name in METRICS for value in _metric_values(row.metric(name))]
    return [*_identity(row), *_stability(row), *metrics, *_comparison(row, report), row.command]


def _identity(row: Row) -> list[Any]:
    result, batch, work = row.result, row.batch, row.work
    return [
        *(row.plan["config"]["sweep"]["name"], row.plan["id"], result and result.stack, row.state, row.reason, result and result.evidence),
        *(work["task"], work["engine"], row.model, row.method, row.hardware, work["runtime"], work["precision"], row.world_size),
        *(
            batch.micro,
            batch.accumulation,
            batch.global_,
            row.seq_len,
            result.repeats if result else 0,
            row.fully_pretrained,
        ),
    ]


def _stability(row: Row) -> list[Any]:
    judged = row.result.stability if row.result else None
    if not judged:
        return [None] * len(STABILITY)
    slowest = min(judged.sm_clocks, key=lambda clock: clock.mean_megahertz, default=None)
    clocks = [slowest.mean_megahertz, slowest.lowest_megahertz, slowest.card_megahertz] if slowest else [None] * 3
    interval = judged.tokens_per_s_low, judged.tokens_per_s_high, judged.source
    return [judged.verdict, "; ".join(judged.reasons), *interval, "; ".join(judged.beside), *clocks]


def _comparison(row: Row, report: Report) -> list[Any]:
    among, paper = _among_rows(row, report), row.paper
    if not paper:
        return [*among, *[None] * (len(COMPARISON) - len(among))]
    ratio = over_paper(row)
    return [*among, paper.table, paper.oom, paper.tokens_per_s, ratio and ratio.value, paper.memory_bytes, row.memory_over_paper, paper.note]


def _among_rows(row: Row, report: Report) -> list[Any]:
    one = report.converged.get(row.plan["id"])
    losses = [one.baseline_id, one.loss_over_baseline, one.seconds_to_loss] if one else [None] * 3
    over_naive = report.over_naive(row)
    ratio = [over_naive.value, *(over_naive.interval or (None, None))] if over_naive else [None] * 3
    return [*(share.value if (share := report.efficiency(row, kind)) else None for kind in KINDS), *losses, *ratio]


def _metric_values(metric: Metric | None) -> tuple[float | None, float | None, float | None]:
    return (metric.mean, metric.std_between_repeats, metric.std_within_run) if metric else (None, None, None)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
