"""Runs of one machine and engine beside a table of the paper, cell by cell."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from llmexp.method import NAIVE
from llmexp.paper.printed import DTYPE, ENGINE, LARGEST_HARDWARE, LORA_RANK, PARAMETERS, SEQ_LEN, WORLD_SIZE, PaperCell
from llmexp.paper.training.cell import settings_unlike
from llmexp.paper.training.cells.candidates import EMULATED, Candidate, of_batch, of_largest
from llmexp.paper.training.cells.lines import ENGINES, LARGEST, Line, Table, tables
from llmexp.report.ratio import RateRatio
from llmexp.report.row import OOM
from llmexp.training.report.row import TrainingRow

MEASURED, OUT_OF_MEMORY, NO_RUN = "measured", "out of memory", "no run"
PEAK = "peak_allocated_bytes"
_OWN_PRECISION = f"the memory that the paper prints is of {DTYPE} parameters and states"


@dataclass(frozen=True)
class Cell:
    """A line with the paper's cell and the run that stands beside it; `compares` is false for another model."""

    line: Line
    paper: PaperCell
    found: Candidate | None
    differences: tuple[str, ...]
    compares: bool

    @property
    def status(self) -> str:
        """How the cell is covered: measured, out of memory, no run, or the state of its run."""
        if not self.found:
            return NO_RUN
        if self.speed and self.found.row.state != EMULATED:
            return MEASURED
        return OUT_OF_MEMORY if self.found.row.state == OOM else self.found.row.state

    @property
    def speed(self) -> float | None:
        """Our mean tokens/s."""
        rate = self.found.metric(self.found.row.plan.rate) if self.found else None
        return rate.mean if rate else None

    @property
    def ratio(self) -> RateRatio | None:
        """Our tokens/s a GPU over the paper's; None where either is missing, or another model or batch was asked."""
        if not self.compares or not self.found or not self.found.row.rate or not self.paper.tokens_per_s:
            return None
        return RateRatio(self.found.row, self.paper.tokens_per_s, WORLD_SIZE / self.found.row.processes)

    @property
    def memory_ratio(self) -> float | None:
        """Our peak of a GPU over the paper's."""
        peak = self.found.metric(PEAK) if self.compares and self.found else None
        return peak.mean / self.paper.memory_bytes if peak and self.paper.memory_bytes else None

    @property
    def is_fair(self) -> bool:
        """Tell whether the cell has a ratio that nothing known makes unfair, of figures that nobody doubts."""
        row, paper = self.found.row if self.found else None, self.paper
        is_doubtful = paper.doubtful and not paper.is_about_memory
        return bool(self.ratio and row and not (self.differences or is_doubtful or row.doubt))


@dataclass(frozen=True)
class Block:
    """The runs of one machine, number of ranks and engine that answer a table; `model` is empty for the paper's."""

    table: Table
    rows: tuple[TrainingRow, ...]
    model: str

    @property
    def where(self) -> str:
        """Where these runs ran."""
        row = self.rows[0]
        engine = "" if self.table.number == ENGINES else f", {row.comparison_key['engine']}"
        return f"{self.model} on {row.processes} x {row.hardware}{engine}".removeprefix(" ")

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell in the paper's order; those of Z1 in table II only where there are runs of it."""
        found = [self._cell(line, candidates) for line, candidates in self._candidates]
        has_z1 = any(cell.found and cell.line.method == "Z1" for cell in found)
        return [cell for cell in found if has_z1 or cell.line.method != "Z1"]

    @property
    def shown(self) -> list[Cell]:
        """The cells of the models of which there are runs."""
        run = {cell.line.model for cell in self.cells if cell.found}
        return [cell for cell in self.cells if cell.line.model in run]

    @property
    def further(self) -> int:
        """The number of runs that answer the same cells and differ more from the paper's."""
        return sum(max(0, len(candidates) - 1) for _, candidates in self._candidates)

    def over_naive(self, cell: Cell) -> float | None:
        """Return our tokens/s over those of Naive in this block."""
        naive = next((each for each in self.shown if each.line.method == NAIVE), None)
        return cell.speed / naive.speed if naive and naive.speed and cell.speed else None

    def papers_over_naive(self, cell: Cell) -> float | None:
        """Return the paper's tokens/s over those of its Naive."""
        naive = next((each.paper.tokens_per_s for each in self.shown if each.line.method == NAIVE), None)
        return cell.paper.tokens_per_s / naive if naive and cell.paper.tokens_per_s else None

    def _cell(self, line: Line, candidates: Sequence[Candidate]) -> Cell:
        hardware = self.rows[0].hardware
        paper = line.printed.get(hardware) or line.printed[LARGEST_HARDWARE]
        engine = line.engine or ENGINE
        found = min(candidates, key=lambda each: _preference(each, paper, engine), default=None)
        differences = tuple(_unlike(found.row, paper, engine)) if found and not self.model else ()
        return Cell(line, paper, found, differences, not self.model and bool(found and not found.open_end))

    @cached_property
    def _candidates(self) -> list[tuple[Line, list[Candidate]]]:
        """The runs that answer each line."""
        lines = self.table.lines_of(self.model) if self.model else self.table.lines
        named: dict[tuple[str, str], list[TrainingRow]] = {}
        for row in self.rows:
            named.setdefault((row.model, row.method), []).append(row)
        return [(line, self._answering(line, named.get((line.model, line.method), []))) for line in lines]

    def _answering(self, line: Line, found: Sequence[TrainingRow]) -> list[Candidate]:
        rows = [row for row in found if line.engine in ("", row.plan.config.engine.name)]
        return of_largest(rows, self.table.experiment) if line.batch is None else of_batch(rows, line.batch)


def blocks(rows: Sequence[TrainingRow], asked: Container[str]) -> Iterator[Block]:
    """Yield the tables that some run answers, once for each machine, number of ranks, engine and foreign model.

    A model that the paper has not stands in the sweep of the table's experiment, or where the table is asked for.
    """
    for table in tables():
        groups: dict[tuple[str, ...], list[TrainingRow]] = {}
        for row in rows:
            if _may_stand_in(table, row, asked):
                groups.setdefault(_place(table, row), []).append(row)
        for (model, *_), found in groups.items():
            block = Block(table, tuple(found), model)
            if _answers(block):
                yield block


def _may_stand_in(table: Table, row: TrainingRow, asked: Container[str]) -> bool:
    known = row.model in table.models or row.plan.config.sweep.name == table.experiment or table.name in asked
    return known and row.comparison_key["task"] == table.task and not row.is_control and not row.program


def _place(table: Table, row: TrainingRow) -> tuple[str, ...]:
    model = "" if row.model in table.models else row.model
    return model, row.hardware, str(row.processes), "" if table.number == ENGINES else row.comparison_key["engine"]


def _answers(block: Block) -> bool:
    """Tell whether a run stands in a cell.

    Of table II one by each engine, as Naive alone is in tables III and IV; of table IV one that fits, or its sweep's.
    """
    found = [cell for cell in block.cells if cell.found]
    if block.table.number == ENGINES:
        return len({cell.line.engine for cell in found}) > 1
    if block.table.number == LARGEST:
        own = any(row.plan.config.sweep.name == block.table.experiment for row in block.rows)
        return any(own or cell.status != OUT_OF_MEMORY for cell in found)
    return bool(found)


def _preference(candidate: Candidate, paper: PaperCell, engine: str) -> tuple[bool, bool, int, bool, str]:
    """Order answers first, those of known extent, those nearest to the paper's run, and measured ones."""
    row = candidate.row
    unknown = not candidate.is_answer
    return unknown, bool(candidate.open_end), len(_unlike(row, paper, engine)), row.state == OOM, row.id


def _unlike(row: TrainingRow, cell: PaperCell, engine: str) -> list[str]:
    """Return each difference that can be known; versions are not among them, since the paper states none."""
    config, work = row.plan.config, row.comparison_key
    checks = {
        f"{_number(row)} parameters in model {row.model}": _is_other_shape(row),
        f"{row.processes} x {row.hardware} instead of {WORLD_SIZE} x {cell.hardware}": row.hardware != cell.hardware
        or row.processes != WORLD_SIZE,
        f"engine {work['engine']} instead of {engine}": config.engine.name != engine,
        f"{row.seq_len} positions a sample instead of {SEQ_LEN}": row.seq_len != SEQ_LEN,
        f"{row.batch.accumulation} passes a step instead of 1": row.batch.accumulation != 1,
        f"{row.layout} instead of data parallelism alone": bool(row.layout),
        f"data {work['data']}": bool(work["data"]),
        _padding(row): True,
        f"adapter.rank={config.adapter.rank} instead of {LORA_RANK}": bool(row.plan.techniques.adapter)
        and config.adapter.rank != LORA_RANK,
        f"evidence {row.state}: memory is limited, not that of the device": row.state == "emulated",
    }
    differing = [words for words, differs in checks.items() if words and differs]
    return [*differing, *(_explained(setting) for setting in settings_unlike(row))]


def _explained(setting: str) -> str:
    return f"{setting}: {_OWN_PRECISION}" if setting.startswith("precision=") else setting


def _padding(row: TrainingRow) -> str:
    """Say how many of the positions that tokens/s counts are tokens; empty where all are."""
    real, rate = row.metric("real_tokens_per_s"), row.rate
    if not real or not rate or real.mean >= rate.mean:
        return ""
    return f"padding: {real.mean / rate.mean:.0%} of the positions that tokens/s counts are tokens"


def _is_other_shape(row: TrainingRow) -> bool:
    known = PARAMETERS.get(row.model)
    return bool(known and row.plan.parameters and row.plan.parameters != known)


def _number(row: TrainingRow) -> str:
    return f"{(row.plan.parameters or 0) / 1e9:.2f} billion"
