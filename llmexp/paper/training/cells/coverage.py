"""How far a table is filled, what its fair cells say together, and the commands that fill the rest."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from math import exp, log
from statistics import fmean

from llmexp.paper.printed import ENGINE
from llmexp.paper.training.cells.blocks import MEASURED, NO_RUN, OUT_OF_MEMORY, Block, Cell
from llmexp.paper.training.cells.lines import ENGINES, Line
from llmexp.record.digits import three_digits
from llmexp.training.report.row import TrainingRow

# Keys that the commands name themselves.
_OWN_KEYS = ("experiment", "model", "method", "hardware", "engine", "batch.micro", "task")


def coverage(block: Block) -> str:
    """Count the cells by how they are covered, and those in which one of both ran out of memory alone."""
    counts = Counter(cell.status for cell in block.shown)
    first = [MEASURED, OUT_OF_MEMORY]
    order = [*first, *(status for status in counts if status not in (*first, NO_RUN)), NO_RUN]
    told = ", ".join(f"{counts[status]} {status}" for status in order if counts[status])
    return f"{len(block.shown)} cells: {told}{_against(block)}"


def _against(block: Block) -> str:
    """Say in how many cells only one of both fitted, of runs that differ from the paper's in nothing known."""
    here = [cell for cell in block.shown if cell.found and not block.model and not cell.differences]
    only = {
        "out of memory here alone": sum(cell.status == OUT_OF_MEMORY and not cell.paper.oom for cell in here),
        "out of memory in the paper alone": sum(cell.status == MEASURED and cell.paper.oom for cell in here),
    }
    said = ", ".join(f"{count} {words}" for words, count in only.items() if count)
    return f"; {said}" if said else ""


def models_left_out(block: Block) -> list[str]:
    """Name the paper's models of which there is no run, whose lines are left out."""
    shown = {cell.line.model for cell in block.shown}
    left = Counter(cell.line.model for cell in block.cells if cell.line.model not in shown)
    return [f"{model}: none of its {count} cells was run" for model, count in left.items()]


def outcome(block: Block) -> str:
    """Return the geometric mean of the fair ratios with their range, or why there is none."""
    fair = [cell.ratio.value for cell in block.shown if cell.is_fair and cell.ratio]
    if not fair:
        return "No cell compares fairly with the paper's: the letters in the cells say why."
    mean, least, most = (three_digits(value, ".2f") for value in (exp(fmean(map(log, fair))), min(fair), max(fair)))
    cells = "the 1 cell" if len(fair) == 1 else f"the {len(fair)} cells"
    return (
        f"In {cells} in which nothing known speaks against it, tokens/s are {mean} times the paper's "
        f"({least} to {most})."
    )


def missing_commands(block: Block) -> list[str]:
    """Return a command for each model, and in table II for each engine and batch, whose cells have no run."""
    wanted: dict[tuple[str, ...], list[str]] = {}
    for cell in _missing(block):
        wanted.setdefault(_words(block, cell.line), []).append(cell.line.method)
    return [
        shlex.join(
            ["python", "-m", "llmexp", *words, f"method={','.join(methods)}", *shared_words(block.rows, _OWN_KEYS)]
        )
        for words, methods in wanted.items()
    ]


def _missing(block: Block) -> Iterator[Cell]:
    return (cell for cell in block.cells if not cell.found)


def _words(block: Block, line: Line) -> tuple[str, ...]:
    row = block.rows[0]
    words = [f"experiment={block.table.experiment}", f"model={line.model}", f"hardware={row.hardware}"]
    if block.table.number == ENGINES:
        return *words, f"engine={line.engine}", f"batch.micro={line.batch}"
    return (
        (*words, f"engine={row.comparison_key['engine']}") if row.comparison_key["engine"] != ENGINE else tuple(words)
    )


def shared_words(rows: Sequence[TrainingRow], but: Container[str]) -> list[str]:
    """Return the words that all runs were typed with, such as measure=quick, without those of some keys."""
    typed = [row.plan.overrides for row in rows]
    kept = [word for word in typed[0] if all(word in words for words in typed)]
    return [word for word in kept if word.lstrip("+").partition("=")[0] not in but]
