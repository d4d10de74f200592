"""Which rows a claim is about, and which of them are compared with which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from llmexp.report.findings.rows import ONE, ClaimRow, RowFigure, atoms

Name = Literal[
    "tokens_per_s",
    "memory_gb",
    "batch",
    "scaling",
    "final_loss",
    "latency_s",
    "kv_cache_tokens",
    "time_s",
    "flops_per_s",
]
Words = tuple[str, ...]


class Selection(BaseModel):
    """Rows by what they are; a field that is empty allows all, and one of several words is enough."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Words = ()
    engine: Words = ()
    model: Words = ()
    hardware: Words = Field((), description="names, or gpu, 24gb, 80gb")
    method: Words = Field((), description="whole methods, in any order of their atoms")
    with_any: Words = Field((), description="atoms of which a method has at least one")
    without: Words = Field((), description="atoms of which a method has none")
    gpus: Words = Field((), description="how many GPUs in all")

    @field_validator("*", mode="before")
    @classmethod
    def _as_words(cls, value: object) -> object:
        return tuple(str(each) for each in (value if isinstance(value, list | tuple) else [value]))

    def has(self, row: ClaimRow) -> bool:
        """Tell whether a row is meant."""
        named = ((self.task, row.task), (self.engine, row.engine), (self.model, row.model))
        return (
            all(not wanted or own.lower() in map(str.lower, wanted) for wanted, own in named)
            and (not self.hardware or bool(row.platform & set(self.hardware)))
            and (not self.method or row.method in [atoms(method) for method in self.method])
            and (not self.with_any or any(atoms(each) <= row.method for each in self.with_any))
            and not any(atoms(each) <= row.method for each in self.without)
            and (not self.gpus or str(row.gpus) in self.gpus)
        )


class SelectedPair(BaseModel):
    """What differs between a row and the row that it is compared with: one of the three; the rest is the same."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    add: str = Field("", description="an atom: X+atom over X")
    swap: tuple[str, str] | None = Field(None, description="two atoms: X+first over X+second")
    field: Literal["engine", "model", "hardware", "batch"] | None = Field(None, description="with `values`")
    values: tuple[str, str] | None = Field(None, description="the field's words in both rows: first over second")

    @field_validator("values", mode="before")
    @classmethod
    def _as_words(cls, value: object) -> object:
        return tuple(map(str, value)) if isinstance(value, list) else value

    def other_method(self, method: frozenset[str]) -> frozenset[str] | None:
        """Return the method that a method is compared with; None where it has not the atom in question."""
        if self.field:
            return method
        gone, come = (self.add, "") if self.add else self.swap or ("", "")
        return (method - {gone.upper()}) | ({come.upper()} - {""}) if gone.upper() in method else None


@dataclass(frozen=True)
class Pair:
    """Two rows that differ in one thing, and the ratio of their figures."""

    over: ClaimRow
    under: ClaimRow
    ratio: RowFigure


def chosen(rows: Sequence[ClaimRow], where: Selection, batch: str = ONE) -> list[ClaimRow]:
    """Return the rows that are meant, with the batch that is meant, each kind of run once."""
    found: dict[tuple[object, ...], ClaimRow] = {}
    for row in rows:
        # Cells that ran out of memory have no batch in table IV, where every row is the largest one tried.
        if batch in row.batches and where.has(row):
            place = (row.hardware, row.gpus, row.setting, row.options, row.micro)
            kind = (row.task, row.engine, row.model, row.method, *place)
            found.setdefault(kind, row)
    return list(found.values())


def pairs(
    rows: Sequence[ClaimRow], comparison: SelectedPair, where: Selection, metric: Name, batch: str = ONE
) -> Iterator[Pair]:
    """Yield the pairs in which both rows have the figure.

    `where` is about the first row of a pair, apart from the field that is compared.
    """
    words = comparison.values or ("", "")
    first, second = words if comparison.field == "batch" else (batch, batch)
    partners: dict[frozenset[str], list[ClaimRow]] = defaultdict(list)
    for row in chosen(rows, Selection(task=where.task), second):
        partners[row.method].append(row)
    for over in chosen(rows, where, first):
        method = comparison.other_method(over.method)
        if method is None or metric not in over.values or not _is(over, comparison.field, words[0]):
            continue
        for under in partners[method]:
            is_other = _is(under, comparison.field, words[1])
            if is_other and metric in under.values and _alike(over, under, comparison.field):
                yield Pair(over, under, over.values[metric].over(under.values[metric]))


def _is(row: ClaimRow, field: str | None, word: str) -> bool:
    if field in (None, "batch"):
        return True
    return word in row.platform if field == "hardware" else str(getattr(row, field)).lower() == word.lower()


def _alike(over: ClaimRow, under: ClaimRow, field: str | None) -> bool:
    """Tell whether two rows share all that is not compared; a larger batch must really be larger."""
    shared = [name for name in ("engine", "model", "hardware") if name != field]
    shared += ["options"] if "engine" in shared else []
    same = all(getattr(over, name) == getattr(under, name) for name in (*shared, "task", "gpus", "setting"))
    return same and (field != "batch" or over.micro > under.micro)
