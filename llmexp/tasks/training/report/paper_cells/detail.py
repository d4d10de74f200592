"""A block as a table: the paper's columns, ours beside them, and the reason in each cell that is no plain figure."""

from __future__ import annotations

from collections.abc import Callable

from llmexp.reference import PaperCell
from llmexp.report.columns import Column, Detail
from llmexp.report.notes import ending_note
from llmexp.report.paper.names import TITLES, words_of
from llmexp.report.paper.notes import Notes
from llmexp.report.signs import doubt_sign
from llmexp.tasks.training.report.paper_cells.blocks import MEASURED, OUT_OF_MEMORY, Block, Cell
from llmexp.tasks.training.report.paper_cells.candidates import EMULATED
from llmexp.tasks.training.report.paper_cells.legend import BYTES_PER_GB, DOUBTED, legend, memory_header, unit_of
from llmexp.tasks.training.report.paper_cells.lines import ENGINES, LARGEST, Line


def block_detail(block: Block) -> Detail:
    """Return the table with its legend, coverage first and the notes of its cells last."""
    notes = Notes()
    columns = [column for column in _columns(block, notes) if any(column.cells)]
    title = f"{words_of(block.table.name)}, {TITLES[block.table.name]}: {block.where}"
    return Detail(title, columns, [*legend(block, [column.header for column in columns]), *notes.lines])


def _columns(block: Block, notes: Notes) -> list[Column]:
    shown, (unit, divisor) = block.shown, unit_of(block)
    paper = f"paper {shown[0].paper.model}" if block.model else "paper"

    def column(header: str, cell: Callable[[Cell], str]) -> Column:
        return Column(header, tuple(cell(each) for each in shown))

    return [
        *_labels(block),
        *([column("batch", _batch), column(f"{paper} batch", _papers_batch)] if block.table.number == LARGEST else []),
        column("tokens/s", lambda cell: _speed(cell, notes)),
        column(f"{paper} tokens/s", lambda cell: _papers_speed(cell, notes)),
        column("x paper", lambda cell: _ratio(cell, notes)),
        column("x Naive", lambda cell: _times(block.over_naive(cell) if block.model else None)),
        column(f"{paper} x Naive", lambda cell: _times(block.papers_over_naive(cell) if block.model else None)),
        column(f"{memory_header(block)} {unit}", lambda cell: _memory(cell, divisor)),
        column(f"{paper} GB", lambda cell: _papers_memory(cell, notes)),
        column("GB x paper", lambda cell: _times(cell.memory_ratio)),
    ]


def _labels(block: Block) -> list[Column]:
    lines = [cell.line for cell in block.shown]
    methods = Column("method", tuple(line.method for line in lines), left=True)
    if block.table.number == ENGINES:
        engines = Column("framework", tuple(line.engine for line in lines), left=True)
        return [engines, methods, Column("batch", tuple(str(line.batch) for line in lines))]
    if block.model:
        return [methods]
    models = [line.model if _begins(line, before) else "" for line, before in zip(lines, [None, *lines], strict=False)]
    return [Column("model", tuple(models), left=True), methods]


def _begins(line: Line, before: Line | None) -> bool:
    return before is None or before.model != line.model


def _speed(cell: Cell, notes: Notes) -> str:
    """Return tokens/s with its sign, or what became of the cell with its reason."""
    if not cell.found:
        return cell.status
    row, rate = cell.found.row, cell.found.metric(cell.found.row.plan.rate)
    if rate:
        sign = f" {doubt_sign(row)}" if row.doubt else ""
        return f"{rate.mean:,.1f}{sign}{notes.mark(cell.found.open_end, *_limited(cell))}"
    return "-" if cell.status == OUT_OF_MEMORY else cell.status + notes.mark(ending_note(row))


def _limited(cell: Cell) -> list[str]:
    limited = cell.found and cell.found.row.state == EMULATED and not cell.differences
    return ["measured against a limit of memory that stands for a smaller device"] if limited else []


def _papers_speed(cell: Cell, notes: Notes) -> str:
    paper = cell.paper
    mark = notes.mark(cell.line.batch_note) + _remark(paper, notes) * (not paper.is_about_memory)
    return ("-" if paper.tokens_per_s is None else f"{paper.tokens_per_s:,.1f}") + mark


def _remark(paper: PaperCell, notes: Notes) -> str:
    """Return the sign of a doubtful figure, and the letter of its note."""
    return f" {DOUBTED}" * paper.doubtful + notes.mark(paper.remark)


def _ratio(cell: Cell, notes: Notes) -> str:
    """Return the ratio, and by letters all that makes it unfair, which stands there without a ratio too."""
    if not cell.found or cell.status != MEASURED:
        return ""
    ratio = cell.ratio.cell() if cell.ratio else ""
    return (ratio + notes.mark(*cell.differences)).strip()


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _batch(cell: Cell) -> str:
    if not cell.found or not cell.found.metric(cell.found.row.plan.rate):
        return ""
    return "≥ " * bool(cell.found.open_end) + str(cell.found.batch)


def _papers_batch(cell: Cell) -> str:
    return str(cell.paper.batch_micro or "")


def _memory(cell: Cell, divisor: float) -> str:
    memory = cell.found.memory if cell.found else None
    return f"{memory[1] / divisor:,.1f}" if memory else ""


def _papers_memory(cell: Cell, notes: Notes) -> str:
    paper = cell.paper
    if paper.memory_bytes is None:
        return ""
    return f"{paper.memory_bytes / BYTES_PER_GB:,.1f}" + (_remark(paper, notes) if paper.is_about_memory else "")
