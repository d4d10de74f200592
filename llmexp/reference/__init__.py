"""The paper's tables (arXiv 2311.03687v2) as data, and the cell that a run may be held against. README.md names the doubtful cells."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

SOURCE = "arXiv 2311.03687v2"
SEQ_LEN = 350
WORLD_SIZE = 8
_PRETRAINING = {"III": "table03_pretrain_bs1", "IV": "table04_pretrain_max_batch"}
_Key = tuple[str, frozenset[str], str, int]


@dataclass(frozen=True)
class PaperCell:
    """A cell of tables III or IV: tokens/s over all 8 GPUs, peak bytes of one GPU (the paper's GB read as 10^9); None where it ran out of memory."""

    table: str
    model: str
    method: str
    hardware: str
    batch_micro: int
    tokens_per_s: float | None
    memory_bytes: float | None
    note: str

    @property
    def oom(self) -> bool:
        """Whether the paper prints '-'."""
        return self.tokens_per_s is None

    @property
    def doubtful(self) -> bool:
        """Whether the printed figure or its label is probably wrong; `note` says why."""
        return self.note.startswith("doubt:")


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of one CSV of this package, by its name without the suffix; values as text."""
    return list(csv.DictReader((files(__name__) / f"{name}.csv").read_text(encoding="utf-8").splitlines()))


def paper_cell(model: str, method: str, hardware: str, batch_micro: int) -> PaperCell | None:
    """Find the pre-training cell of the same model, hardware, samples per GPU and set of atoms (table III before IV), or None."""
    return _cells().get((model.upper(), _atoms(method), hardware.lower(), batch_micro))


@cache
def _cells() -> dict[_Key, PaperCell]:
    cells: dict[_Key, PaperCell] = {}
    for table, name in _PRETRAINING.items():
        for cell in _read_cells(table, name):
            cells.setdefault((cell.model, _atoms(cell.method), cell.hardware, cell.batch_micro), cell)
    return cells


def _read_cells(table: str, name: str) -> Iterator[PaperCell]:
    for row in read_table(name):
        # Table IV prints no batch size where even the smallest ran out of memory.
        if row["batch_size"]:
            yield PaperCell(
                table=table,
                model=row["model"],
                method=row["method"],
                hardware=row["hardware"],
                batch_micro=int(row["batch_size"]),
                tokens_per_s=float(row["tokens_per_s"]) if row["tokens_per_s"] else None,
                memory_bytes=float(row["memory_gb"]) * 1e9 if row["memory_gb"] else None,
                note=row["note"],
            )


def _atoms(method: str) -> frozenset[str]:
    return frozenset(atom.strip().upper() for atom in method.split("+"))
