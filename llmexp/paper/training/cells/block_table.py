"""A block as a table: the paper's columns, ours beside them, and the reason in each cell that is no plain figure."""

from __future__ import annotations

from collections.abc import Callable, Container

from llmexp.paper.printed import SEQ_LEN, SOURCE, WORLD_SIZE, PaperCell
from llmexp.paper.training.cells.blocks import OUT_OF_MEMORY, PEAK, Block, Cell
from llmexp.paper.training.cells.candidates import EMULATED
from llmexp.paper.training.cells.coverage import coverage, models_left_out
from llmexp.paper.training.cells.lines import ENGINES, LARGEST
from llmexp.paper.views.names import TITLES, words_of
from llmexp.paper.views.notes import Notes
from llmexp.record.digits import rounded, three_digits
from llmexp.report.columns import Column, ReportTable
from llmexp.report.legend import applying
from llmexp.report.notes import ending_note
from llmexp.report.provenance import provenance
from llmexp.report.signs import UNKNOWN, UNSTABLE, doubt_sign
from llmexp.training.report.memory_column import MEMORY_HEADERS, MEMORY_WORDS

_Maker = Callable[[Cell], str]
_LEFT = ("model", "framework", "method")
_DOUBTED = "?"
BYTES_PER_GB, BYTES_PER_MB = 1e9, 1e6


def block_table(block: Block) -> ReportTable:
    """Return the table with its legend, coverage first and the notes of its cells last."""
    notes = Notes()
    makers = {**_labels(block), **_figures(block, notes)}
    # Line by line, so that the letters of notes come in the order of reading.
    lines = [[make(cell) for make in makers.values()] for cell in block.shown]
    columns = [
        Column(header, cells, left=header in _LEFT)
        for header, cells in zip(makers, zip(*lines, strict=True), strict=True)
        if any(cells)
    ]
    title = f"{words_of(block.table.name)}, {TITLES[block.table.name]}: {block.where}"
    return ReportTable(title, columns, [*_legend(block, [column.header for column in columns]), *notes.lines])


def _labels(block: Block) -> dict[str, _Maker]:
    """Return the columns that name a line."""
    if block.table.number == ENGINES:
        return {
            "framework": lambda cell: cell.line.engine,
            "method": lambda cell: cell.line.method,
            "batch": lambda cell: str(cell.line.batch),
        }
    models: dict[str, _Maker] = {} if block.model else {"model": lambda cell: cell.line.model}
    return models | {"method": lambda cell: cell.line.method}


def _figures(block: Block, notes: Notes) -> dict[str, _Maker]:
    unit, divisor = _unit_of(block)
    paper = f"paper {block.shown[0].paper.model}" if block.model else "paper"
    batches: dict[str, _Maker] = {"batch": _batch, f"{paper} batch": _papers_batch}
    return {
        **(batches if block.table.number == LARGEST else {}),
        "tokens/s": lambda cell: _speed(cell, notes),
        f"{paper} tokens/s": lambda cell: _papers_speed(cell, notes),
        "x paper": lambda cell: _ratio(cell, notes),
        "x Naive": lambda cell: _times(block.over_naive(cell) if block.model else None),
        f"{paper} x Naive": lambda cell: _times(block.papers_over_naive(cell) if block.model else None),
        f"{_memory_header(block)} {unit}": lambda cell: _memory(cell, divisor),
        f"{paper} GB": lambda cell: _papers_memory(cell, notes),
        "GB x paper": lambda cell: _times(cell.memory_ratio),
    }


def _speed(cell: Cell, notes: Notes) -> str:
    """Return tokens/s with its sign, or what became of the cell with its reason."""
    if not cell.found:
        return cell.status
    row, rate = cell.found.row, cell.found.metric(cell.found.row.plan.rate)
    if rate:
        sign = f" {doubt_sign(row)}" if row.doubt else ""
        return f"{rounded(rate.mean)}{sign}{notes.mark(cell.found.open_end, *_limited(cell))}"
    return "-" if cell.status == OUT_OF_MEMORY else cell.status + notes.mark(ending_note(row))


def _limited(cell: Cell) -> list[str]:
    limited = cell.found and cell.found.row.state == EMULATED and not cell.differences
    return ["measured against a limit of memory that stands for a smaller device"] if limited else []


def _papers_speed(cell: Cell, notes: Notes) -> str:
    paper = cell.paper
    speed = "-" if paper.tokens_per_s is None else f"{paper.tokens_per_s:,.1f}"
    remark = "" if paper.is_about_memory else _remark(paper, notes)
    return speed + notes.mark(cell.line.batch_note) + remark


def _remark(paper: PaperCell, notes: Notes) -> str:
    """Return the sign of a doubtful figure, and the letter of its note."""
    return f" {_DOUBTED}" * paper.doubtful + notes.mark(paper.remark)


def _ratio(cell: Cell, notes: Notes) -> str:
    """Return the ratio, and by letters all that makes it unfair; these also stand beside what ran out of memory."""
    if not cell.found or not cell.found.is_answer:
        return ""
    ratio = cell.ratio.cell() if cell.ratio else ""
    return (ratio + notes.mark(*cell.differences)).strip()


def _times(value: float | None) -> str:
    return "" if value is None else three_digits(value, ".2f")


def _batch(cell: Cell) -> str:
    if not cell.found or not cell.found.metric(cell.found.row.plan.rate):
        return ""
    return "≥ " * bool(cell.found.open_end) + str(cell.found.batch)


def _papers_batch(cell: Cell) -> str:
    return str(cell.paper.batch_micro or "")


def _memory(cell: Cell, divisor: float) -> str:
    memory = cell.found.memory if cell.found else None
    return three_digits(memory[1] / divisor, ",.1f") if memory else ""


def _papers_memory(cell: Cell, notes: Notes) -> str:
    paper = cell.paper
    if paper.memory_bytes is None:
        return ""
    return f"{paper.memory_bytes / BYTES_PER_GB:,.1f}" + (_remark(paper, notes) if paper.is_about_memory else "")


def _legend(block: Block, headers: Container[str]) -> list[str]:
    """Return the lines, those first that say whether these are the paper's models, and how far the table is filled."""
    rows = [cell.found.row for cell in block.shown if cell.found]
    return [*_foreign(block), coverage(block), *models_left_out(block), *_columns(block, headers), *provenance(rows)]


def _unit_of(block: Block) -> tuple[str, float]:
    """Return one unit for the memory of all cells with its bytes: GB, or MB where no cell reaches one GB."""
    known = [cell.found.memory[1] for cell in block.shown if cell.found and cell.found.memory]
    is_large = max(known, default=BYTES_PER_GB) >= BYTES_PER_GB
    return ("GB", BYTES_PER_GB) if is_large else ("MB", BYTES_PER_MB)


def _memory_header(block: Block) -> str:
    """Return the kind of memory that all cells have, in a word."""
    kinds = _kinds(block)
    return MEMORY_HEADERS[kinds[0]] if len(kinds) == 1 else "memory"


def _kinds(block: Block) -> list[str]:
    return sorted({cell.found.memory[0] for cell in block.shown if cell.found and cell.found.memory})


def _foreign(block: Block) -> list[str]:
    """Say that a model is not the paper's, and what stands beside it."""
    paper = block.shown[0].paper
    told = (
        f"NOT the paper's model: {block.model} on {block.rows[0].hardware}; beside it stands the paper's {paper.model} "
        f"on {WORLD_SIZE} x {paper.hardware}, to look at the pattern: no ratio to it"
    )
    return [told] if block.model else []


def _columns(block: Block, headers: Container[str]) -> list[str]:
    cells, papers = block.shown, block.shown[0].paper.hardware
    several = any(cell.ratio and cell.ratio.interval for cell in cells)
    half = " ± half its 95 % interval by the repeats" * several
    other, kinds = block.further, _kinds(block)
    ours = MEMORY_WORDS[kinds[0]] if len(kinds) == 1 else ", ".join(MEMORY_WORDS[kind] for kind in kinds)
    source = f"paper: {SOURCE}, {WORLD_SIZE} x {papers}, {SEQ_LEN} random tokens a sample, tokens/s of all GPUs"
    return applying(
        {
            f"{source}; it states no versions": True,
            f"x paper: our tokens/s a GPU over the paper's{half}; letters there: what makes it unfair": "x paper"
            in headers,
            "batch: samples a GPU, as the paper's is read, which does not say so; ≥: a larger one may fit": (
                block.table.number == LARGEST
            ),
            f"memory: {ours}; the paper's: the peak of one GPU": bool(kinds) and kinds != [PEAK],
            f"{_DOUBTED} behind the paper's figure: probably wrong, for the reason in its note": any(
                cell.paper.doubtful for cell in cells
            ),
            f"{UNSTABLE} behind ours: unstable, {UNKNOWN}: stability unknown; llmexp report says why": any(
                cell.found and cell.found.row.doubt for cell in cells
            ),
            "-: out of memory": any(cell.paper.oom or cell.status == OUT_OF_MEMORY for cell in cells),
            f"{other} further runs of these cells are not shown: the one nearest to the paper's is": other > 0,
        }
    )
