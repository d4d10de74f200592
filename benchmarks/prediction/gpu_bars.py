"""The pre-training of 7B on one card as bars, of all tables and of other trainers: the README's picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.prediction.gpu_rows import CARDS, GpuRow
from benchmarks.prediction.gpu_tables import names
from llmexp.record.digits import rounded
from llmexp.report.picture import COLORS, INK, new_figure, plain, save
from llmexp.report.signs import UNKNOWN, UNSTABLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEQ_LEN = "4096"
_TITLE = (
    f"7B pre-trained on one card, sequences of {SEQ_LEN}: program, method, batch; bf16 and AdamW if none is said\n"
    "measured, in brackets MFU; whiskers: deviation of the steps; ?: unknown whether stable; gray: other trainers"
)
_OTHERS = "#9aa0a6"
_GB = 1e9
# Left out of labels where a row has it, as most do.
_USUAL = ("bf16_pure", "adamw")


def bars_of(rows: Sequence[GpuRow]) -> list[tuple[str, GpuRow]]:
    """Return the rows that are drawn with their labels, by card and from slow to fast.

    Of rows of one label it is the one of most measured steps, which is as a rule the surest.
    """
    kept = [row for row in rows if (row.row["task"], row.row.get("model")) == ("pretrain", "7b") and row.measured]
    kept = [row for row in kept if row.row["seq_len"] == SEQ_LEN]
    longest = {_label(row): row for row in sorted(kept, key=lambda row: float(row.row["measured_steps"]))}
    return sorted(longest.items(), key=lambda bar: (CARDS[::-1].index(bar[1].card), bar[1].measured))


def draw_bars(rows: Sequence[GpuRow], path: Path) -> None:
    """Write the picture: a bar a row for its tokens/s, and one for its peak memory."""
    drawn = bars_of(rows)
    figure = new_figure(10.5, 1.3 + 0.26 * len(drawn), _TITLE)
    speeds, memory = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": (3, 2)})
    colors = [_OTHERS if _is_script(row) else COLORS[CARDS[::-1].index(row.card)] for _, row in drawn]
    _draw(speeds, "tokens/s", [row.measured or 0.0 for _, row in drawn], colors)
    _draw(memory, "peak allocated, GB", [(row.allocated or 0.0) / _GB for _, row in drawn], colors)
    for place, (_, row) in enumerate(drawn):
        deviation, speed = float(row.row.get("tokens_per_s_std_within_run") or 0), row.measured or 0.0
        speeds.errorbar(speed, place, xerr=deviation, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
        _write(speeds, place, speed + deviation, _told(row))
        _write(memory, place, (row.allocated or 0.0) / _GB, rounded((row.allocated or 0.0) / _GB))
    speeds.set_yticks(range(len(drawn)), [label for label, _ in drawn])
    speeds.set_ylim(len(drawn) - 0.4, -0.6)
    save(figure, path)


def _is_script(row: GpuRow) -> bool:
    return row.row["engine"].startswith("script")


def _label(row: GpuRow) -> str:
    _, _, method, engine, batch, _, *words = names(row)
    ran = [engine.removeprefix("script ")] if _is_script(row) else [engine, method]
    unusual = [word for word in words if word.removeprefix("declared ") not in _USUAL]
    return ", ".join([" ".join([row.card, *ran]), batch, *unusual])


def _told(row: GpuRow) -> str:
    """Write a speed with its sign of doubt and its MFU, where the program tells which model it trained."""
    sign = {"unstable": UNSTABLE, "unknown": UNKNOWN}.get(row.row.get("stability", ""), "")
    mfu = row.row.get("mfu")
    return " ".join(filter(None, [rounded(row.measured or 0.0), sign, f"({100 * float(mfu):.1f} %)" if mfu else ""]))


def _draw(axes: Axes, label: str, values: Sequence[float], colors: Sequence[str]) -> None:
    plain(axes, grid="x")
    axes.barh(range(len(values)), values, height=0.66, color=colors)
    axes.set_xlabel(label, fontsize=9)
    axes.set_xlim(0, 1.25 * max(values, default=1.0))


def _write(axes: Axes, place: int, reach: float, told: str) -> None:
    axes.annotate(told, (reach, place), xytext=(7, 0), textcoords="offset points", va="center", fontsize=7, color=INK)
