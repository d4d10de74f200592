"""The paper's tables V to VIII and XIII to XVI, which say where the time of a step of pre-training goes, as figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from llmexp.paper.printed import read_table, remark_of

HARDWARE = "a800"
MODELS = ("7b", "13b")
FORWARD, BACKWARD, REST = "forward", "backward", "rest"
WHOLE, COMPUTING = "whole, % of step", "computing, % of phase"
PHASES, PHASES_RECOMPUTING, MODULES, ATTENTION = "V", "VII", "VI", "VIII"
GEMMS, COPIES, ALL_REDUCE, COMMUNICATION = "XIII", "XIV", "XV", "XVI"
DECODER_MODULES = ("QKV", "RoPE", "Bmm0", "Softmax", "Bmm1", "Output", "MLP", "RMSNorm")
"""The modules of a decoder layer in figure 5."""
_METHODS = {"naive": "Naive", "flashattention": "F", "recomputation": "R", "R+F": "F+R"}
# Tables XIV and XVI print ZeRO at batch 32, which fits with R alone by table IV; O would explain their long steps.
_ZERO = {"ZeRO-2": ("Z2", "R+Z2", "R+Z2+O"), "ZeRO-3": ("Z3", "R+Z3", "R+Z3+O")}
# Neither table prints a batch: Naive's steps are those of table V, R's those of table VII.
_BATCHES = {"Naive": 2, "F": 2, "R": 32, "F+R": 32}
_SECOND = "phase_time_bs32_recompute"
_IN_ONE = "attention: QKV to Output in one layer, its computation alone"
_BATCH = "the paper prints no batch here: 2 for Naive and F, 32 for R, whose steps are of that length"
_HIDDEN_OR_NOT = "time in all, hidden by computation or not"
_READINGS = (
    "ours: the printed method, and what it may mean: by table IV batch 32 fits with R alone, and the steps that these "
    "shares imply are 2 to 4 times as long as with R"
)


@dataclass(frozen=True)
class PaperFigure:
    """A line of a table: milliseconds, a percentage, or both, of a run by one of `methods`.

    Several methods are several readings of what the table prints; the first is the printed one.
    """

    labels: tuple[str, ...]
    methods: tuple[str, ...]
    batch_micro: int
    time_ms: float | None
    percent: float | None
    model: str = "7b"
    note: str = ""

    @property
    def remark(self) -> str:
        """A sentence on why the figure is doubtful, or what is odd about it; empty where neither is the case."""
        return remark_of(self.note)


@dataclass(frozen=True)
class PaperTable:
    """A table by its Roman number; `share` says what its percentages are of."""

    number: str
    title: str
    headings: tuple[str, ...]
    share: str
    figures: tuple[PaperFigure, ...]
    remark: str = ""


@cache
def breakdown_tables() -> tuple[PaperTable, ...]:
    """Return the tables in the paper's order."""
    of_phase, of_zero = ("phase", "part"), ("method", "model")
    first, second = tuple(_phases("table05_phase_time_bs2", "Naive")), tuple(_phases(f"table07_{_SECOND}", "R"))
    copies, all_communication = tuple(_zero("table14_memory_copy")), tuple(_zero("table16_communication"))
    return (
        PaperTable(PHASES, "phases", of_phase, "%", first),
        PaperTable(MODULES, "modules", ("phase", "module"), "% of phase", tuple(_modules())),
        PaperTable(PHASES_RECOMPUTING, "phases with recomputation", of_phase, "%", second),
        PaperTable(
            ATTENTION, "one attention module", ("phase", "method"), "% faster than Naive", tuple(_attention()), _IN_ONE
        ),
        PaperTable(GEMMS, "GEMMs", ("method", "phase"), "% of phase", tuple(_gemms()), _BATCH),
        PaperTable(COPIES, "memory copies", of_zero, "% of step", copies, _READINGS),
        PaperTable(
            ALL_REDUCE, "AllReduce", ("method",), "% of step", tuple(_all_reduce()), f"{_HIDDEN_OR_NOT}; {_BATCH}"
        ),
        PaperTable(
            COMMUNICATION, "communication", of_zero, "% of step", all_communication, f"{_HIDDEN_OR_NOT}; {_READINGS}"
        ),
    )


def decoder_shares() -> dict[tuple[str, str], float]:
    """Return the percentages of figure 5 at batch 2, by phase and module, which follow from table VI.

    Those at batch 32 are in no text.
    """
    rows = [row for row in read_table("table06_module_time_bs2") if row["module"] in DECODER_MODULES]
    wholes = {phase: sum(float(row["time_ms"]) for row in rows if row["phase"] == phase) for phase in _in_order(rows)}
    return {(row["phase"], row["module"]): 100 * float(row["time_ms"]) / wholes[row["phase"]] for row in rows}


def modules_of(phase: str) -> list[str]:
    """Return the names that table VI prints for a phase."""
    return [row["module"] for row in read_table("table06_module_time_bs2") if row["phase"] == phase]


def _phases(name: str, method: str) -> Iterator[PaperFigure]:
    left = 100.0
    for row in read_table(name):
        whole, computing, batch = float(row["overall_ms"]), float(row["compute_kernel_ms"]), int(row["batch_size"])
        share = float(row["share_of_step_percent"])
        yield PaperFigure((row["phase"], WHOLE), (method,), batch, whole, share, note=row["note"])
        yield PaperFigure((row["phase"], COMPUTING), (method,), batch, computing, 100 * computing / whole)
        left -= share
    yield PaperFigure((REST, WHOLE), (method,), batch, None, left)


def _modules() -> Iterator[PaperFigure]:
    rows = read_table("table06_module_time_bs2")
    for phase in _in_order(rows):
        left = 100.0
        for row in (row for row in rows if row["phase"] == phase):
            share = float(row["share_of_phase_percent"])
            labels = (phase, row["module"])
            yield PaperFigure(labels, ("Naive",), 2, float(row["time_ms"]), share, note=row["note"])
            left -= share
        yield PaperFigure((phase, REST), ("Naive",), 2, None, left)


def _attention() -> Iterator[PaperFigure]:
    for row in read_table("table08_flashattention_module"):
        method, percent = _METHODS[row["method"]], row["improvement_percent"]
        share = float(percent) if percent else None
        yield PaperFigure((row["phase"], method), (method,), 2, float(row["attention_ms"]), share, note=row["note"])


def _gemms() -> Iterator[PaperFigure]:
    for row in read_table("table13_gemm_share"):
        method = _METHODS[row["method"]]
        share = float(row["gemm_share_percent"])
        yield PaperFigure((method, row["phase"]), (method,), _BATCHES[method], None, share, note=row["note"])


def _all_reduce() -> Iterator[PaperFigure]:
    for row in read_table("table15_allreduce"):
        method = _METHODS.get(row["method"], row["method"])
        time_ms, share = 1e3 * float(row["time_s_per_iteration"]), float(row["share_percent"])
        yield PaperFigure((method,), (method,), _BATCHES[method], time_ms, share, note=row["note"])


def _zero(name: str) -> Iterator[PaperFigure]:
    for row in read_table(name):
        labels, batch = (row["method"], row["model"]), int(row["batch_size"])
        time_ms, share = 1e3 * float(row["time_s_per_iteration"]), float(row["share_percent"])
        yield PaperFigure(labels, _ZERO[row["method"]], batch, time_ms, share, row["model"].lower(), row["note"])


def _in_order(rows: Sequence[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(row["phase"] for row in rows))
