"""The paper's tables as rows; see llmexp/paper/printed/README.md for the files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from llmexp.paper.printed import WORLD_SIZE, read_table
from llmexp.report.findings.rows import ClaimRow, RowFigure, atoms, batch_words, platform

# Table III comes first: where table II repeats one of its runs, pairs take III's.
_TRAINING = {"III": "table03_pretrain_bs1", "IV": "table04_pretrain_max_batch", "IX": "table09_finetune_bs1"}
_ENGINES = "table02_megatron_vs_deepspeed"
# Of every other table, the columns whose words name a line.
_OTHERS = {
    "V": ("table05_phase_time_bs2", ("phase",)),
    "VI": ("table06_module_time_bs2", ("phase", "module")),
    "VII": ("table07_phase_time_bs32_recompute", ("phase",)),
    "VIII": ("table08_flashattention_module", ("phase", "method")),
    "X": ("table10_lightllm_module_time", ("group", "task")),
    "XI": ("table11_lightllm_timeline", ("stage", "part")),
    "XII": ("table12_mlp_first_gemm", ("method",)),
    "XIII": ("table13_gemm_share", ("method", "phase")),
    "XIV": ("table14_memory_copy", ("model", "method")),
    "XV": ("table15_allreduce", ("model", "method")),
    "XVI": ("table16_communication", ("model", "method")),
}
_CARD_BYTES = {"a800": 80e9, "rtx4090": 24e9, "rtx3090_nvlink": 24e9, "rtx3090": 24e9}
_DOUBT = "doubt:"


@cache
def paper_rows() -> tuple[ClaimRow, ...]:
    """Return every cell of tables II to XVI, in the order in which pairs look for them."""
    training = [row for table, name in _TRAINING.items() for row in _training(table, name)]
    return (*training, *_engines(), *(row for table in _OTHERS for row in _other(table)))


def _training(table: str, name: str) -> Iterator[ClaimRow]:
    for row in read_table(name):
        method = "+".join(sorted(row["method"].split("+"), key=_place))
        yield _cell(table, f"{row['model']} {method} {row['hardware']}", row, "deepspeed", row["method"])


def _engines() -> Iterator[ClaimRow]:
    for row in read_table(_ENGINES):
        label = f"{row['framework']} {row['batch_size']}"
        yield _cell("II", label, row, row["framework"].lower(), "Naive")


def _cell(table: str, label: str, row: dict[str, str], engine: str, method: str) -> ClaimRow:
    micro = int(row["batch_size"] or 0)
    figures = {name: RowFigure.exact(float(row[name])) for name in ("tokens_per_s", "memory_gb") if row[name]}
    is_largest = table == "IV" or (table == "II" and micro > 1)
    return ClaimRow(
        table=table,
        label=label,
        values=figures | ({"batch": RowFigure.exact(micro)} if figures else {}),
        task="finetune" if table == "IX" else "pretrain",
        engine=engine,
        model=row["model"],
        method=atoms(method),
        hardware=row["hardware"],
        platform=platform(row["hardware"], _CARD_BYTES[row["hardware"]]),
        micro=micro,
        # What table IV lists with batch 1 is table III's cell once more.
        batches=batch_words(micro, is_largest) - ({"one", "1"} if table == "IV" else set()),
        gpus=WORLD_SIZE,
        oom=row.get("oom") == "true",
        doubt=row["note"] if row["note"].startswith(_DOUBT) else "",
    )


def _other(table: str) -> Iterator[ClaimRow]:
    name, named_by = _OTHERS[table]
    for row in read_table(name):
        figures = {column: RowFigure.exact(float(text)) for column, text in row.items() if _is_number(text)}
        doubt = row["note"] if row["note"].startswith(_DOUBT) else ""
        yield ClaimRow(table, " ".join(row[column] for column in named_by), figures, doubt=doubt)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _place(atom: str) -> int:
    """The place of an atom in llmexp's order of a method's atoms."""
    order = ("L", "QL", "F", "R", "Z2", "Z3", "O", "Q")
    return order.index(atom) if atom in order else -1
