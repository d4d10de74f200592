"""The names of the paper's tables and figures, which are those of their experiments."""

from __future__ import annotations

import re

TITLES = {
    "table01": "the machines",
    "table02": "DeepSpeed and Megatron-LM",
    "table03": "pre-training at batch 1",
    "table04": "pre-training at the largest batch",
    "fig04": "scaling over GPUs",
    "table05": "phases of a step",
    "table06": "modules of a step",
    "fig05": "shares of a decoder layer's modules",
    "table07": "phases with recomputation",
    "table08": "one attention module",
    "table09": "fine-tuning at batch 1",
    "fig06": "throughput of servers",
    "fig07": "latencies of 7B",
    "fig08": "latencies of 13B on each machine",
    "fig09": "latencies, engine beside engine",
    "fig10": "latencies, machine beside machine",
    "table10": "a step of serving by kernels",
    "table11": "a step of serving by stages",
    "table12": "the first product of the MLP",
    "table13": "GEMMs",
    "fig11": "products over m",
    "table14": "memory copies",
    "fig12": "copies between host and device",
    "table15": "AllReduce",
    "table16": "communication",
    "fig13": "AllGather with NVLink and without",
    "fig14": "ReduceScatter with NVLink and without",
    "fig15": "collectives on A800",
}
"""The paper's order; figures stand where their runs belong."""
ROMAN = dict(
    zip(
        ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV", "XVI"),
        (f"table{number:02}" for number in range(1, 17)),
        strict=True,
    )
)
_WORD = re.compile(r"(table|fig(?:ure)?)[ _.]?0*(\d+)", re.IGNORECASE)
_NUMBERS = {name: number for number, name in ROMAN.items()}


def name_of(word: str) -> str | None:
    """Return the name that a word such as table3, fig4 or IV means; None where it means none of the paper's."""
    if found := _WORD.fullmatch(word.removeprefix("paper_")):
        kind = "table" if found[1].lower() == "table" else "fig"
        name = f"{kind}{int(found[2]):02}"
        return name if name in TITLES else None
    return ROMAN.get(word)


def experiment_of(name: str) -> str:
    """Return the experiment that measures a table or figure, which is the name of its sweep for tables III, IV, IX."""
    return f"paper_{name}"


def words_of(name: str) -> str:
    """Return how a heading calls a table or figure."""
    return f"table {_NUMBERS[name]} of the paper" if name in _NUMBERS else f"figure {int(name[3:])} of the paper"


def place_of(name: str) -> int:
    """Return the place in the paper's order."""
    return list(TITLES).index(name)
