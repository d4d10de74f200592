"""The paper's tables (arXiv 2311.03687v2) as data, and the search for the cell that a run can be compared with.

README.md names the doubtful cells.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

SOURCE = "arXiv 2311.03687v2"
SEQ_LEN = 350
WORLD_SIZE = 8
LORA_RANK = 64
# The paper names its models alone: Llama 2 (arXiv 2307.09288), whose parameters their published shapes give.
PARAMETERS = {"7b": 6_738_415_616, "13b": 13_015_864_320, "70b": 68_976_648_192}
# For a machine that the paper has not, the cells of its largest one stand beside.
LARGEST_HARDWARE = "a800"
# The paper does not state them; these are the default of adapter.targets.
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_TRAINING = {"III": "table03_pretrain_bs1", "IV": "table04_pretrain_max_batch", "IX": "table09_finetune_bs1"}
_Key = tuple[str, frozenset[str], str, int, str]
# The paper names neither; its memory tells: 66.7 GB for 7B Naive are 8 bytes a parameter, with Adam's two moments.
DTYPE, OPTIMIZER = "bf16", "adamw"
# All its training is by DeepSpeed, but for two cells of table II.
ENGINE = "deepspeed"
# Table II names no method for Megatron and says that no optimization was on.
MEGATRON_METHOD = "Naive"
_DOUBT, _ODD = "doubt:", "lint:"
_MEMORY, _BRACKETS = re.compile(r"\bGB\b|\bmemory\b"), re.compile(r"\([^)]*\)")
PAPER_FIGURE = "figure 4, as the text gives it; of A800 it says near linear"


@dataclass(frozen=True)
class PaperCell:
    """A cell of tables II to IV and IX: tokens/s over all 8 GPUs and peak bytes of a GPU (a GB read as 10^9).

    Both are None where the run ran out of memory. `batch_micro` is 0 where Table IV prints none, as even 1 did not fit.
    """

    table: str
    model: str
    method: str
    hardware: str
    batch_micro: int
    tokens_per_s: float | None
    memory_bytes: float | None
    note: str

    @property
    def task(self) -> str:
        """The task that the table measures."""
        return "finetune" if self.table == "IX" else "pretrain"

    @property
    def oom(self) -> bool:
        """Tell whether the paper prints '-'."""
        return self.tokens_per_s is None

    @property
    def doubtful(self) -> bool:
        """Tell whether the printed figure or its label is probably wrong; `note` says why."""
        return self.note.startswith(_DOUBT)

    @property
    def remark(self) -> str:
        """A sentence on why the figure is doubtful, or what is odd about it; empty where neither is the case."""
        return remark_of(self.note)

    @property
    def is_about_memory(self) -> bool:
        """Tell whether the remark is on the memory alone: it begins with it, outside of brackets."""
        return bool(self.remark and _MEMORY.search(_BRACKETS.sub("", self.note).partition(". ")[0]))


@dataclass(frozen=True)
class PaperScaling:
    """A scaling efficiency that the text gives for figure 4."""

    percent: float
    note: str


def remark_of(note: str) -> str:
    """Return the note of a cell as a sentence where it says that the cell is doubtful or odd; else nothing."""
    return note.replace(_ODD, "odd:") if note.startswith((_DOUBT, _ODD)) else ""


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of one of this package's CSV files, by its name without the suffix; values are text."""
    return list(csv.DictReader((files(__name__) / f"{name}.csv").read_text(encoding="utf-8").splitlines()))


def paper_cell(model: str, method: str, hardware: str, batch_micro: int, engine: str = ENGINE) -> PaperCell | None:
    """Find the cell of the same model, hardware, samples per GPU, engine and set of atoms, or None.

    Table III comes before IV; methods with L or QL are in table IX.
    """
    return _cells().get((model.upper(), _atoms(method), hardware.lower(), batch_micro, engine))


def paper_batches(model: str, method: str, hardware: str, engine: str = "deepspeed") -> list[PaperCell]:
    """Return the cells of the same model, hardware, engine and set of atoms that have a speed, of all batches."""
    wanted = (model.upper(), _atoms(method), hardware.lower(), engine)
    return [cell for (*kind, _, by), cell in _cells().items() if (*kind, by) == wanted and not cell.oom]


def paper_scaling(model: str, method: str, hardware: str, batch_micro: int, gpus: int) -> PaperScaling | None:
    """Find the efficiency of the same model, set of atoms, hardware, samples per GPU and number of GPUs, or None."""
    wanted = (model.upper(), _atoms(method), hardware.lower(), batch_micro, gpus)
    for row in read_table("figure04_scaling"):
        if (row["model"], _atoms(row["method"]), row["hardware"], int(row["batch_size"]), int(row["gpus"])) == wanted:
            return PaperScaling(float(row["efficiency_percent"]), row["note"])
    return None


@dataclass(frozen=True)
class PaperGemm:
    """A row of table XII: the first product of 7B's MLP on an A800."""

    time_s: float
    peak_percent: float
    note: str


def paper_gemm(m: int, n: int, k: int) -> PaperGemm | None:
    """Find the row of table XII with these sizes, in bf16, or None."""
    for row in read_table("table12_mlp_first_gemm"):
        if (int(row["m"]), int(row["n"]), int(row["k"])) == (m, n, k):
            return PaperGemm(float(row["time_ms"]) / 1e3, float(row["peak_percent"]), row["note"])
    return None


@cache
def paper_cells(table: str) -> tuple[PaperCell, ...]:
    """Return every cell of table III, IV or IX, in the paper's order. Raises KeyError for another table."""
    return tuple(_read_cells(table, _TRAINING[table]))


def paper_largest(model: str, method: str, hardware: str) -> PaperCell | None:
    """Find the cell of table IV, whose batch is the largest that fitted there, or None."""
    wanted = (model.upper(), _atoms(method), hardware.lower())
    return next(
        (cell for cell in paper_cells("IV") if (cell.model, _atoms(cell.method), cell.hardware) == wanted), None
    )


@cache
def _cells() -> dict[_Key, PaperCell]:
    cells: dict[_Key, PaperCell] = {}
    for table in _TRAINING:
        for cell in (cell for cell in paper_cells(table) if cell.batch_micro):
            cells.setdefault((cell.model, _atoms(cell.method), cell.hardware, cell.batch_micro, ENGINE), cell)
    for cell in _megatron_cells():
        cells[cell.model, _atoms(cell.method), cell.hardware, cell.batch_micro, "megatron"] = cell
    return cells


def _megatron_cells() -> Iterator[PaperCell]:
    """Yield table II's cells, each with the printed batch size and with an eighth of it: it may be the global one."""
    for row in read_table("table02_megatron_vs_deepspeed"):
        if row["framework"] == "Megatron":
            printed = int(row["batch_size"])
            for micro in {printed, printed // WORLD_SIZE} - {0}:
                values = float(row["tokens_per_s"]), float(row["memory_gb"]) * 1e9
                yield PaperCell("II", row["model"], MEGATRON_METHOD, row["hardware"], micro, *values, row["note"])


def _read_cells(table: str, name: str) -> Iterator[PaperCell]:
    for row in read_table(name):
        yield PaperCell(
            table=table,
            model=row["model"],
            method=row["method"],
            hardware=row["hardware"],
            batch_micro=int(row["batch_size"] or 0),
            tokens_per_s=float(row["tokens_per_s"]) if row["tokens_per_s"] else None,
            memory_bytes=float(row["memory_gb"]) * 1e9 if row["memory_gb"] else None,
            note=row["note"],
        )


def _atoms(method: str) -> frozenset[str]:
    return frozenset(atom.strip().upper() for atom in method.split("+"))
