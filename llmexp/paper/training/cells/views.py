"""The views of tables II, III, IV and IX: table, lines of CSV, sentences and charts of each block."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from llmexp.analysis.inference import mean_interval
from llmexp.paper.printed import WORLD_SIZE
from llmexp.paper.training.cells.block_table import block_table
from llmexp.paper.training.cells.blocks import NO_RUN, Block, Cell, blocks
from llmexp.paper.training.cells.coverage import coverage, missing_commands, outcome
from llmexp.record.digits import rounded
from llmexp.report.columns import Whisker
from llmexp.report.page.chart import Chart, ChartTrace
from llmexp.report.references.view import View
from llmexp.report.signs import doubt_sign
from llmexp.training.report.row import TrainingRow


def cell_views(rows: Sequence[TrainingRow], asked: Container[str]) -> list[View]:
    """Return a view of each table that some run answers, for each machine; see blocks."""
    return [_view(block) for block in blocks(rows, asked)]


def _view(block: Block) -> View:
    foreign = f"{block.model} is not the paper's model: the pattern stands beside the paper's, without ratios."
    said = [foreign if block.model else outcome(block), f"{coverage(block)}."]
    return View(
        name=block.table.name,
        table=block_table(block),
        answers=said,
        cells=[_record(block, cell) for cell in block.cells],
        missing=missing_commands(block),
        charts=list(_charts(block)),
        rows=[cell.found.row for cell in block.shown if cell.found],
    )


def _record(block: Block, cell: Cell) -> dict[str, Any]:
    """Return a line of CSV in SI units and bytes; `unlike` joins what makes the ratio unfair."""
    row, paper = block.rows[0], cell.paper
    own = {
        "table": block.table.name,
        "model": cell.line.model,
        "method": cell.line.method,
        "hardware": row.hardware,
        "gpus": row.processes,
        "engine": cell.line.engine or row.comparison_key["engine"],
        "batch": cell.found.batch if cell.found else cell.line.batch,
        "status": cell.status,
    }
    papers = {
        "paper_model": paper.model,
        "paper_hardware": paper.hardware,
        "paper_gpus": WORLD_SIZE,
        "paper_batch": paper.batch_micro or None,
        "paper_oom": paper.oom,
        "paper_tokens_per_s": paper.tokens_per_s,
        "paper_memory_bytes": paper.memory_bytes,
        "paper_doubtful": paper.doubtful,
        "paper_note": paper.note,
    }
    return own | _figures(cell) | papers | _comparison(cell)


def _figures(cell: Cell) -> dict[str, Any]:
    found = cell.found
    if not found:
        return dict.fromkeys(("reason", "tokens_per_s", "tokens_per_s_std_between_repeats", "memory", "memory_bytes"))
    rate, memory = found.metric(found.row.plan.rate), found.memory
    return {
        "reason": found.row.reason,
        "tokens_per_s": rate and rate.mean,
        "tokens_per_s_std_between_repeats": rate and rate.std_between_repeats,
        "memory": memory and memory[0],
        "memory_bytes": memory and memory[1],
    }


def _comparison(cell: Cell) -> dict[str, Any]:
    ratio, found = cell.ratio, cell.found
    low, high = (ratio.interval if ratio else None) or (None, None)
    return {
        "tokens_per_s_per_gpu_over_paper": ratio and ratio.value,
        "over_paper_low": low,
        "over_paper_high": high,
        "memory_over_paper": cell.memory_ratio,
        "unlike": "; ".join([*cell.differences, *([found.open_end] if found and found.open_end else [])]),
        "doubt": found and found.row.doubt,
        "id": found and found.row.id,
        "command": found and found.row.command,
    }


def _charts(block: Block) -> Iterator[Chart]:
    """Yield bars for each of the paper's models beside its own, or of another model's gains beside the paper's."""
    for model in dict.fromkeys(cell.line.model for cell in block.shown):
        cells = [cell for cell in block.shown if cell.line.model == model and cell.status != NO_RUN]
        yield _gains(block, cells) if block.model else _speeds(block, model, cells)


def _speeds(block: Block, model: str, cells: Sequence[Cell]) -> Chart:
    unit = "rank" if block.rows[0].plan.config.hardware.device == "cpu" else "GPU"
    ours = [cell.speed / block.rows[0].processes if cell.speed else None for cell in cells]
    papers = [cell.paper.tokens_per_s / WORLD_SIZE if cell.paper.tokens_per_s else None for cell in cells]
    label = f"the paper, {WORLD_SIZE} x {cells[0].paper.hardware}"
    intervals = [_interval(cell, 1 / block.rows[0].processes) for cell in cells]
    traces = [_bars(block.where, cells, ours, intervals), _printed(label, cells, papers)]
    return Chart(f"{model}: tokens/s a {unit}", "method", f"tokens/s a {unit}", traces, _NOTE)


def _gains(block: Block, cells: Sequence[Cell]) -> Chart:
    paper = cells[0].paper
    ours, papers = [block.over_naive(cell) for cell in cells], [block.papers_over_naive(cell) for cell in cells]
    label = f"the paper, {paper.model} on {WORLD_SIZE} x {paper.hardware}"
    traces = [_bars(block.where, cells, ours), _printed(label, cells, papers)]
    return Chart("Tokens/s over those of Naive", "method", "times Naive", traces, _NOTE)


def _bars(
    name: str, cells: Sequence[Cell], heights: Sequence[float | None], intervals: Sequence[Whisker | None] = ()
) -> ChartTrace:
    told = [_told(cell, height) for cell, height in zip(cells, heights, strict=True)]
    words = [_words(cell) for cell in cells]
    return ChartTrace(name, [_name(cell) for cell in cells], heights, words, intervals, "bars", told)


def _told(cell: Cell, height: float | None) -> str:
    """Return a bar's value with the sign of its run, or how its cell stands."""
    sign = doubt_sign(cell.found.row) if cell.found else ""
    return f"{rounded(height)} {sign}".rstrip() if height else cell.status


def _printed(name: str, cells: Sequence[Cell], heights: Sequence[float | None]) -> ChartTrace:
    return ChartTrace(name, [_name(cell) for cell in cells], heights, (), (), "bars")


def _interval(cell: Cell, factor: float) -> Whisker | None:
    rate = cell.found.metric(cell.found.row.plan.rate) if cell.found else None
    return mean_interval(rate, factor) if rate else None


_NOTE = "No bar: out of memory, or not measured."


def _name(cell: Cell) -> str:
    words = [cell.line.engine, cell.line.method, f"batch {cell.line.batch}" * bool(cell.line.engine)]
    return " ".join(filter(None, words))


def _words(cell: Cell) -> str:
    found = cell.found
    told = [cell.status, f"batch {found.batch}" if found else "", doubt_sign(found.row) if found else ""]
    return ", ".join(filter(None, told))
