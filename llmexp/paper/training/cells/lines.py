"""The lines of the paper's tables on whole methods, in its order, with what it prints for each machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from llmexp.method import Method
from llmexp.paper.printed import ENGINE, MEGATRON_METHOD, WORLD_SIZE, PaperCell, paper_cells, read_table
from llmexp.paper.views.names import ROMAN, experiment_of

ENGINES, FIXED, LARGEST, TUNING = "II", "III", "IV", "IX"
_MEGATRON = "megatron"


@dataclass(frozen=True)
class Line:
    """A line: the work that it asks for, and the paper's cells of it by machine.

    `batch` is samples a GPU, None where the largest is asked for; `engine` is empty where the table names none.
    `batch_note` says how a printed batch is read.
    """

    model: str
    method: str
    batch: int | None
    printed: Mapping[str, PaperCell]
    engine: str = ""
    batch_note: str = ""


@dataclass(frozen=True)
class Table:
    """A table by its Roman number, with the task that it measures and its lines."""

    number: str
    task: str
    lines: tuple[Line, ...]

    @property
    def name(self) -> str:
        """The name, such as table03."""
        return ROMAN[self.number]

    @property
    def experiment(self) -> str:
        """The experiment of llmexp, whose sweep has its name too."""
        return experiment_of(self.name)

    @property
    def models(self) -> tuple[str, ...]:
        """The paper's models in it, in our names."""
        return tuple(dict.fromkeys(line.model for line in self.lines))

    def lines_of(self, model: str) -> tuple[Line, ...]:
        """Return the lines for a model that the paper has not: each method once, with the paper's first model."""
        first: dict[tuple[str, str, int | None], Line] = {}
        for line in self.lines:
            first.setdefault((line.method, line.engine, line.batch), replace(line, model=model))
        return tuple(first.values())


@cache
def tables() -> tuple[Table, ...]:
    """Return the tables in the paper's order."""
    return (
        Table(ENGINES, "pretrain", tuple(_of_engines())),
        Table(FIXED, "pretrain", tuple(_of_methods(FIXED, "pretrain"))),
        Table(LARGEST, "pretrain", tuple(_of_methods(LARGEST, "pretrain"))),
        Table(TUNING, "finetune", tuple(_of_methods(TUNING, "finetune"))),
    )


def _of_methods(number: str, task: str) -> Iterator[Line]:
    found: dict[tuple[str, str], dict[str, PaperCell]] = {}
    for cell in paper_cells(number):
        method = str(Method.parse(cell.method, task))
        found.setdefault((cell.model.lower(), method), {})[cell.hardware] = cell
    for (model, method), printed in found.items():
        yield Line(model, method, None if number == LARGEST else 1, printed)


def _of_engines() -> Iterator[Line]:
    """Yield table II's lines; Megatron's large batch is read as one GPU's and as that of all, and Z1 beside Naive."""
    for row in read_table("table02_megatron_vs_deepspeed"):
        engine, printed = row["framework"].lower(), int(row["batch_size"])
        values = float(row["tokens_per_s"]), float(row["memory_gb"]) * 1e9
        cell = PaperCell("II", row["model"], MEGATRON_METHOD, row["hardware"], printed, *values, row["note"])
        readings = [printed] if engine == ENGINE or printed < WORLD_SIZE else [printed, printed // WORLD_SIZE]
        for method in (MEGATRON_METHOD, "Z1") if engine == _MEGATRON else (MEGATRON_METHOD,):
            for batch in readings:
                note = f"the paper's {printed} read as that of all {WORLD_SIZE} GPUs" if batch != printed else ""
                yield Line(row["model"].lower(), method, batch, {row["hardware"]: cell}, engine, note)
