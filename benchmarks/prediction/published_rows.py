"""Training speeds that others published: the rows of benchmarks/published.csv, and what their units mean.

No constant is fitted to them. Each row holds what its source says and nothing else; an empty cell is not said there.
`note` has what no column has room for, and `doubt:` with the reason where a figure cannot be right.

- `source` names who measured; rows of one source share software, machines and habits.
- `url` is the page, with the commit where the page is a file. `date` is the day or month that it gives.
- `family` is llama (RMSNorm, gated MLP), qwen3 (llama with norms of queries and keys), mixtral (llama with experts of
  equal size), gpt (LayerNorm, an MLP of two matrices), or another family whose shape llmexp does not know.
- `intermediate` is the width of the MLP, or of one expert. `tied` is yes where head and embedding share weights.
- `hardware` names a file of conf/hardware, or a card that has none. `devices` counts all cards, `nodes` the machines.
- `accumulation` is the number of passes a step, `global_batch` the samples of a step; one of them is enough.
- `precision` is bf16_mixed (fp32 master weights), bf16_pure, fp16, fp8, mxfp8 or nvfp4.
- `etp` is the ranks that each expert is cut over; empty, it is tp.
- `sharding` is the ZeRO stage that comes closest: FSDP is 3, a distributed optimizer 1. `offload` has what the host
  keeps. `recomputation` is none, selective, full, or the share of layers that are recomputed.
- `value` and `unit` are as printed.
- `memory_gb` is the peak of a card in 10^9 bytes; `memory_kind` says by what: allocated, reserved, or peak if unsaid.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

PUBLISHED = Path(__file__).parents[1] / "published.csv"
KINDS = ("pretrain", "finetune")
RECOMPUTATIONS = ("none", "selective", "full")


@dataclass(frozen=True)
class Row:
    """One published run, in the words of its source."""

    source: str
    url: str
    date: str
    kind: str
    model: str
    family: str
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    intermediate: int | None
    vocab: int | None
    tied: str
    experts: int | None
    top_k: int | None
    hardware: str
    devices: int
    nodes: int | None
    seq_len: int
    micro_batch: int | None
    accumulation: int | None
    global_batch: int | None
    framework: str
    precision: str
    sharding: int | None
    offload: str
    tp: int
    sequence_parallel: str
    pp: int
    virtual_stages: int | None
    schedule: str
    cp: int
    ep: int
    recomputation: str
    flash: str
    compile: str
    adapter: str
    rank: int | None
    optimizer: str
    value: float
    unit: str
    memory_gb: float | None
    memory_kind: str
    note: str
    etp: int | None = None
    ends_as_layers: str = ""
    """Which of embedding and head count as a layer where stages share out layers: embedding, head or both."""

    @property
    def replicas(self) -> int:
        """The number of data-parallel replicas."""
        return self.devices // (self.tp * self.pp * self.cp)

    @property
    def samples(self) -> int | None:
        """The samples of a step; None where the source does not say enough."""
        if self.global_batch or not (self.micro_batch and self.accumulation):
            return self.global_batch
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def tokens_per_s_per_device(self) -> float:
        """The speed by the unit in which it was printed."""
        return UNITS[self.unit](self)

    @property
    def doubted(self) -> bool:
        """Tell whether the figure cannot be right, so that no prediction is judged by it."""
        return "doubt:" in self.note

    @property
    def group(self) -> tuple[str, str]:
        """The source and the hardware, which share a correction."""
        return self.source, self.hardware

    def __str__(self) -> str:
        cut = [f"{name} {size}" for name, size in (("tp", self.tp), ("pp", self.pp), ("cp", self.cp)) if size > 1]
        what = f"{self.model} {self.devices} x {self.hardware} {self.precision} seq {self.seq_len}"
        return " ".join([self.source, what, f"micro {self.micro_batch or '?'}", *cut])


def _by_step(row: Row) -> float:
    if row.samples is None:
        raise ValueError(f"{row}: {row.unit} needs the samples of a step")
    return row.samples * row.seq_len / row.value / row.devices


# What turns a value into tokens a second of one card.
UNITS: dict[str, Callable[[Row], float]] = {
    "tokens/s/GPU": lambda row: row.value,
    "tokens/s": lambda row: row.value / row.devices,
    "samples/s": lambda row: row.value * row.seq_len / row.devices,
    "s/step": _by_step,
    "ms/step": lambda row: 1000 * _by_step(row),
    "s/1024 samples": lambda row: 1024 * row.seq_len / row.value / row.devices,
}


def published_rows(path: Path = PUBLISHED) -> list[Row]:
    """Return all rows."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_row(cells) for cells in csv.DictReader(file, strict=True)]


def _row(cells: dict[str, str]) -> Row:
    types = {field.name: str(field.type) for field in fields(Row)}
    return Row(**{name: _value(types[name], text) for name, text in cells.items()})  # type: ignore[arg-type]


def _value(kind: str, text: str) -> str | int | float | None:
    """Return a cell's value; an empty one is None where the column allows it."""
    if kind == "str":
        return text
    if text == "" and kind.endswith("None"):
        return None
    return int(text) if kind.startswith("int") else float(text)
