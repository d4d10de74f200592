"""What each engine can do, as the engines themselves say it of the cells of experiment=capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmexp.cli.jobs import Job
from llmexp.cli.overrides import as_typed
from llmexp.report.columns import Column
from llmexp.report.terminal import as_table, console, write

YES = "yes"
HEADER = "what"


@dataclass(frozen=True)
class Matrix:
    """Cells by what is asked for (the words to type) and engine, each 'yes' or the numbers of the reasons against it."""

    engines: tuple[str, ...]
    rows: dict[str, dict[str, str]]
    reasons: tuple[str, ...]


def matrix(jobs: Sequence[Job], given: Sequence[str]) -> Matrix:
    """Ask the plans, of which all have the words `given`; one that would be skipped is what its engine cannot do."""
    left_out = {*as_typed(given), *(f"engine={job.plan.config.engine.name}" for job in jobs)}
    reasons = tuple(dict.fromkeys(job.plan.skip for job in jobs if job.plan.skip))
    rows: dict[str, dict[str, str]] = {}
    for job in jobs:
        words = " ".join(word for word in as_typed(job.overrides) if word not in left_out)
        skip = job.plan.skip
        rows.setdefault(words.replace("=True", "=true"), {})[job.plan.config.engine.name] = f"no ({reasons.index(skip) + 1})" if skip else YES
    return Matrix(tuple(dict.fromkeys(job.plan.config.engine.name for job in jobs)), rows, reasons)


def print_matrix(found: Matrix) -> None:
    """Print it for a terminal."""
    screen = console()
    columns = [Column(engine, tuple(cells.get(engine, "") for cells in found.rows.values()), left=True) for engine in found.engines]
    screen.print(as_table([Column(HEADER, tuple(found.rows), left=True), *columns]))
    for number, reason in enumerate(found.reasons, 1):
        write(screen, f"({number}) {reason}")


def markdown(found: Matrix) -> str:
    """The same for documents."""
    lines = [[HEADER, *found.engines], ["---"] * (1 + len(found.engines))]
    lines += [[f"`{words}`", *(cells.get(engine, "") for engine in found.engines)] for words, cells in found.rows.items()]
    table = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([*table, "", *(f"{number}. {reason}" for number, reason in enumerate(found.reasons, 1))]) + "\n"
