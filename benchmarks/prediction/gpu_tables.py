"""The tables of GPU rows beside their predictions: speeds, memory, the largest batches, and the card's limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.prediction.gpu_rows import CARDS, GpuRow
from llmexp.record.digits import GIB, rounded
from llmexp.report.columns import ReportTable
from llmexp.report.text import table_lines
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.prediction import request_of
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.rates import rates_of

_NAMES = ("table", "model", "method", "engine", "batch", "seq_len", "precision", "optimizer")
_RIGHT = ("tokens/s", "predicted", "GB", "error")
# Table IV's length, and the batches that a plan is asked for: powers of two, as there.
_SEQ_LEN, _BATCHES = "350", [1 << power for power in range(12)]
_GB, _TERA = 1e9, 1e12
# The length at which the micro tables have their fastest attention, and this project its 7B rows.
_POSITIONS = 4096


def words(row: GpuRow) -> str:
    """Name a row in a sentence."""
    _, model, method, engine, batch, seq_len, precision, optimizer = names(row)
    return f"{model} {method} by {engine}, {batch} of {seq_len}, {precision}, {optimizer}"


def names(row: GpuRow) -> list[str]:
    """Return what tells a row from others, in the order of the columns."""
    read, plan, engine = row.row, row.plan, row.row["engine"].split()
    found = [f"[{row.table}]({row.table}.md)", read.get("model", ""), read.get("method", "")]
    found.append(" ".join([engine[0], *(Path(program).name for program in engine[1:2])]))
    if isinstance(plan, ServingPlan):
        load = request_of(plan)
        return [*found, ", ".join(map(str, plan.points)), f"{load.prompt:g} + {load.output:g}", plan.dtype or "", ""]
    passes = int(read.get("batch_accumulation") or 1)
    batch = read.get("batch_micro", "") + f" x {passes} passes" * (passes > 1)
    seq_len, precision = read.get("seq_len", ""), read.get("precision", "")
    if not isinstance(plan, TrainingPlan):
        return [*found, batch, seq_len, precision, ""]
    asked = plan.config.precision
    batch += " fused" * plan.config.kernels.fused_accumulation
    precision += f" {asked.scaling}" if asked.linears else ""
    return [*found, batch, seq_len, precision, plan.config.optimizer.name]


def speeds(rows: Sequence[GpuRow]) -> list[str]:
    """Return the lines of every row with its speed, predicted speed and interval, or why it has none."""
    headers = [*_NAMES, "tokens/s", "predicted", "9 of 10", "error", "in it", "in the fit"]
    table = ReportTable.of_rows("Speed", headers, [[*names(row), *_speed(row)] for row in rows], right=_RIGHT)
    return [
        *table_lines(table),
        "- 9 of 10: the plan's 90 % interval; in it: it holds the measured speed",
        "- in the fit: shared constants are fitted to it and to the paper's cells together",
        "- fused: with `kernels.fused_accumulation`",
        "- of a server: its loads, tokens in + out, and the output tokens/s of the load with the most",
    ]


def _speed(row: GpuRow) -> list[str]:
    measured = rounded(row.measured) if row.measured else row.ended if row.row["state"] != "success" else ""
    found = row.prediction
    if found is None:
        return [measured, row.unpredicted, "", "", "", ""]
    interval = f"{rounded(found.low)} to {rounded(found.high)}"
    judged = [_percent(row.off), "yes" if row.held else "no"] if row.off is not None else ["", ""]
    return [measured, rounded(found.rate), interval, *judged, "yes" if row.is_fitted else "no"]


def memory(rows: Sequence[GpuRow]) -> list[str]:
    """Return the lines of all rows that hold a model: peak, estimate and verdict beside how they ended."""
    headers = [*_NAMES, "GB", "predicted", "error", "needs, GiB", "of GiB", "plan: fits", "it"]
    found = [[*names(row), *_memory(row)] for row in rows if row.fit or row.held_bytes]
    table = ReportTable.of_rows("Memory", headers, found, right=_RIGHT)
    return [
        *table_lines(table),
        "- GB: the allocator's peak, of a server what was in use; beside it the plan's tensors at their fullest moment",
        "- needs: these with the libraries, to the same with 30 % of the activations for the allocator's waste",
    ]


def _memory(row: GpuRow) -> list[str]:
    fit, held = row.fit, row.held_bytes
    measured = rounded(held / _GB) if held else ""
    if fit is None:
        return [measured, row.unpredicted or "not known", "", "", "", "", row.ended]
    needs = f"{rounded(fit.need / GIB)} to {rounded(fit.most / GIB)}"
    sizes = [measured, rounded(fit.tensors / _GB), _percent(row.memory_off), needs, rounded(fit.capacity / GIB)]
    return [*sizes, fit.verdict, row.ended]


def largest(rows: Sequence[GpuRow]) -> list[str]:
    """Return the lines of Table IV's methods: which batches ran, beside those of which the plan is sure."""
    groups: dict[tuple[str, ...], list[GpuRow]] = defaultdict(list)
    for row in rows:
        _, *named, batch, seq_len, precision, optimizer = names(row)
        if row.fit and row.row["task"] == "pretrain" and seq_len == _SEQ_LEN and batch.isdigit():
            groups[row.card, *named, precision, optimizer].append(row)
    headers = ["card", *_NAMES[1:4], "precision", "optimizer", "ran", "out of memory", "plan: yes to", "no from"]
    title = f"Batches at {_SEQ_LEN} positions, as in the paper's Table IV"
    lines = table_lines(ReportTable.of_rows(title, headers, [[*key, *_frontier(of)] for key, of in groups.items()]))
    return [*lines, "- of powers of two; between the two the plan says `uncertain`"]


def _frontier(rows: Sequence[GpuRow]) -> list[str]:
    ended = {end: [int(row.row["batch_micro"]) for row in rows if row.ended == end] for end in ("ran", "out of memory")}
    plan = rows[0].plan
    assert isinstance(plan, TrainingPlan)
    said = {batch: fit.verdict for batch in _BATCHES if (fit := fit_of(plan, batch))}
    sure = max((batch for batch, verdict in said.items() if verdict == "yes"), default=0)
    never = min((batch for batch, verdict in said.items() if verdict == "no"), default=0)
    return [*(", ".join(map(str, sorted(batches))) for batches in ended.values()), str(sure), str(never)]


def limits(rows: Sequence[GpuRow]) -> list[str]:
    """Return the lines of what predictions take a card to reach, beside what microbenchmarks of it reached."""
    measured = {row.card: row for row in rows if row.row["task"] == "micro"}
    told = [[card, *line] for card in CARDS if card in measured for line in _limits(measured[card].row, rows)]
    headers = ["card", "limit", "measured", "predictions take", "error"]
    table = ReportTable.of_rows("Limits", headers, told, right=("measured", "predictions take", "error"))
    return [
        *table_lines(table),
        "- predictions on this page take none of the measured ones; a plan does, where its outputs folder has them",
    ]


def _limits(read: Mapping[str, str], rows: Sequence[GpuRow]) -> Iterator[list[str]]:
    plans = [row.plan for row in rows if row.card == read["hardware"]]
    plan = next((plan for plan in plans if isinstance(plan, TrainingPlan)), None)
    if plan is None:
        return
    rates, _ = rates_of(plan)
    attention = rates.attention_share / (1 + rates.attention_half_length / _POSITIONS)
    taken = {
        "large products in bf16, TFLOP/s": ("gemm_bf16_flops_per_s", rates.products_share * rates.peak_flops_per_s),
        f"fused attention, forward, {_POSITIONS} positions, TFLOP/s": (
            "attention_flash_forward_flops_per_s",
            attention * rates.peak_flops_per_s,
        ),
        "memory, TB/s": ("memory_bytes_per_s", rates.memory_bytes_per_s),
    }
    for name, (metric, rate) in taken.items():
        if text := read.get(metric):
            found = float(text)
            yield [name, rounded(found / _TERA), rounded(rate / _TERA), _percent(rate / found - 1)]


def _percent(off: float | None) -> str:
    return "" if off is None else f"{100 * off:+.1f} %"
