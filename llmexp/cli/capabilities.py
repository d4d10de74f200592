"""The capabilities of each engine, as the engines themselves judge the cells of experiment=capabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmexp.cli.overrides import as_typed
from llmexp.errors import ConfigError
from llmexp.record.plan import RunPlan
from llmexp.report.columns import Column
from llmexp.report.screen import as_table, console, write

YES, ENGINE = "yes", "engine"
Answer = tuple[Sequence[str], RunPlan | ConfigError]
HEADER = "what"


@dataclass(frozen=True)
class CapabilityMatrix:
    """A table by the words to type and by engine; each cell is 'yes' or the number of the reason against it."""

    engines: tuple[str, ...]
    rows: dict[str, dict[str, str]]
    reasons: tuple[str, ...]


def matrix(answers: Iterable[Answer], given: Sequence[str]) -> CapabilityMatrix:
    """Build the matrix of runs that all have the words `given`.

    An engine cannot do a run that would be skipped or cannot be planned.
    """
    rows: dict[str, dict[str, str]] = {}
    reasons: dict[str, int] = {}
    for overrides, plan in answers:
        asked = dict(word.split("=", 1) for word in as_typed(overrides) if word not in as_typed(given))
        engine = asked.pop(ENGINE, None) or _engine_of(given)
        against = str(plan) if isinstance(plan, ConfigError) else plan.skip and plan.skip.reason
        words = " ".join(f"{key}={value}" for key, value in asked.items())
        rows.setdefault(words.replace("=True", "=true"), {})[engine] = (
            f"no ({reasons.setdefault(against, len(reasons) + 1)})" if against else YES
        )
    return CapabilityMatrix(
        tuple(dict.fromkeys(engine for cells in rows.values() for engine in cells)), rows, tuple(reasons)
    )


def _engine_of(words: Sequence[str]) -> str:
    return next(word.removeprefix(f"{ENGINE}=") for word in words if word.startswith(f"{ENGINE}="))


def print_matrix(found: CapabilityMatrix) -> None:
    """Print the matrix on the terminal."""
    screen = console()
    columns = [
        Column(engine, tuple(cells.get(engine, "") for cells in found.rows.values()), left=True)
        for engine in found.engines
    ]
    screen.print(as_table([Column(HEADER, tuple(found.rows), left=True), *columns]))
    for number, reason in enumerate(found.reasons, 1):
        write(screen, f"({number}) {reason}")


def markdown(found: CapabilityMatrix) -> str:
    """Return the matrix as Markdown."""
    lines = [[HEADER, *found.engines], ["---"] * (1 + len(found.engines))]
    lines += [
        [f"`{words}`", *(cells.get(engine, "") for engine in found.engines)] for words, cells in found.rows.items()
    ]
    table = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([*table, "", *(f"{number}. {reason}" for number, reason in enumerate(found.reasons, 1))]) + "\n"
