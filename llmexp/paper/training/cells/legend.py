"""The lines below a block's table: its coverage, what its columns mean, and where it was measured."""

from __future__ import annotations

from collections.abc import Container

from llmexp.paper.printed import SEQ_LEN, SOURCE, WORLD_SIZE
from llmexp.paper.training.cells.blocks import OUT_OF_MEMORY, PEAK, Block
from llmexp.paper.training.cells.coverage import coverage, models_left_out
from llmexp.paper.training.cells.lines import LARGEST
from llmexp.report.legend import applying
from llmexp.report.provenance import provenance
from llmexp.report.signs import UNKNOWN, UNSTABLE
from llmexp.training.report.memory_column import MEMORY_HEADERS, MEMORY_WORDS

DOUBTED = "?"
BYTES_PER_GB, BYTES_PER_MB = 1e9, 1e6


def legend(block: Block, headers: Container[str]) -> list[str]:
    """Return the lines, those first that say whether these are the paper's models, and how far the table is filled."""
    rows = [cell.found.row for cell in block.shown if cell.found]
    return [*_foreign(block), coverage(block), *models_left_out(block), *_columns(block, headers), *provenance(rows)]


def unit_of(block: Block) -> tuple[str, float]:
    """Return one unit for the memory of all cells with its bytes: GB, or MB where no cell reaches one GB."""
    known = [cell.found.memory[1] for cell in block.shown if cell.found and cell.found.memory]
    is_large = max(known, default=BYTES_PER_GB) >= BYTES_PER_GB
    return ("GB", BYTES_PER_GB) if is_large else ("MB", BYTES_PER_MB)


def memory_header(block: Block) -> str:
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
            f"{DOUBTED} behind the paper's figure: probably wrong, for the reason in its note": any(
                cell.paper.doubtful for cell in cells
            ),
            f"{UNSTABLE} behind ours: unstable, {UNKNOWN}: not known whether stable; llmexp report says why": any(
                cell.found and cell.found.row.doubt for cell in cells
            ),
            "-: out of memory": any(cell.paper.oom or cell.status == OUT_OF_MEMORY for cell in cells),
            f"{other} further runs of these cells are not shown: the one nearest to the paper's is": other > 0,
        }
    )
