"""`python -m benchmarks.prediction.gpu_page` writes this project's GPU rows beside predictions, with pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.prediction.gpu_bars import draw_bars
from benchmarks.prediction.gpu_picture import draw
from benchmarks.prediction.gpu_rows import CARDS, GpuRow, gpu_rows
from benchmarks.prediction.gpu_tables import largest, limits, memory, speeds, words
from llmexp.record.writing import write_atomically

PAGE, PICTURE = Path("docs/results/gpu-predictions.md"), Path("docs/pictures/gpu_predictions.png")
BARS = Path("docs/pictures/gpu_7b.png")
_HEAD = """\
# Predictions beside this project's GPUs

[Prediction](../prediction.md) says how a plan predicts. Here every row that was measured on one H100 and one H200
stands beside what the same words predict. The rows come from the CSV files beside [the
tables](README.md#measured-tables), which have each row's command. One command plans them and writes this page, its
picture and [that of the tables](../pictures/gpu_7b.png); run it again after new rows:

    python -m benchmarks.prediction.gpu_page

No earlier run and no microbenchmark corrects these predictions. They go by

- the cards' data sheets, in `conf/hardware`;
- shares of peaks that products and attention reach on Hopper, from NVIDIA's [measured
  kernels](../prediction.md#sources);
- constants that all hardware shares, fitted to the paper's cells and to the trainings on the H200 below. The H200 alone
  tells the constants of `C`, of Megatron and of the fused AdamW; [without its rows](prediction.md) they are predicted
  too. No row of the H100 is in any fit;
- for memory, a closed formula: nothing in it is fitted, and its two allowances are round numbers.

The formulas were written when the rows of 2026-11-26 and 27 were known. An error is predicted over measured, less 1.
"""
_PICTURE = f"![Predicted over measured tokens/s and memory of each row](../pictures/{PICTURE.name})"


def page(rows: Sequence[GpuRow]) -> str:
    """Return the page in Markdown."""
    parts = [_summary(rows), [""], _verdicts(rows), ["", _PICTURE, "", "## Row by row"]]
    parts += [speeds(rows), memory(rows), largest(rows), limits(rows)]
    return "\n".join([_HEAD, *(line for part in parts for line in part)]).rstrip() + "\n"


def summary_rows(rows: Sequence[GpuRow]) -> Iterator[list[str]]:
    """Yield the errors of speeds by card, and of memory: how many rows, the median, the worst with its words."""
    for card in CARDS:
        found = [row for row in rows if row.card == card and row.off is not None]
        yield from _speeds(f"tokens/s on one {card.upper()}", [row for row in found if not row.is_served])
        yield from _speeds(f"output tokens/s of servers on one {card.upper()}", [row for row in found if row.is_served])
    kept = [row for row in rows if row.memory_off is not None]
    if kept:
        yield ["allocated GB on both, none in a fit", *_errors(kept, lambda row: row.memory_off), ""]


def _speeds(name: str, rows: Sequence[GpuRow]) -> Iterator[list[str]]:
    if rows:
        fitted = sum(row.is_fitted for row in rows)
        some = "all" if fitted == len(rows) else fitted or "none"
        held = f"{sum(row.held for row in rows)} of {len(rows)}"
        yield [f"{name}, {some} of them in the fit", *_errors(rows, lambda row: row.off), held]


def _errors(rows: Sequence[GpuRow], error: Callable[[GpuRow], float | None]) -> list[str]:
    off = {place: found for place, row in enumerate(rows) if (found := error(row)) is not None}
    worst = max(off, key=lambda place: abs(off[place]))
    middle = median(abs(found) for found in off.values())
    return [str(len(off)), f"{100 * middle:.1f} %", f"{100 * abs(off[worst]):.1f} %: {words(rows[worst])}"]


def _summary(rows: Sequence[GpuRow]) -> Iterator[str]:
    yield "| measured | rows | median error | worst error | in the 90 % interval |"
    yield "|---|---:|---:|---|---:|"
    for cells in summary_rows(rows):
        yield f"| {' | '.join(cells)} |"
    yield ""
    without = [row.unpredicted or row.ended for row in rows if row.off is None]
    yield f"{len(without)} of {len(rows)} rows have no error of speed:"
    yield ""
    for reason in dict.fromkeys(without):
        yield f"- {without.count(reason)}: {reason}"


def _verdicts(rows: Sequence[GpuRow]) -> Iterator[str]:
    """Yield how rows ended by what the plan said of memory."""
    yield "| `llmexp plan`: fits | rows | ran | out of memory |"
    yield "|---|---:|---:|---:|"
    for verdict in ("yes", "uncertain", "no"):
        ended = [row.ended for row in rows if row.fit and row.fit.verdict == verdict]
        yield f"| {verdict} | {len(ended)} | {ended.count('ran')} | {ended.count('out of memory')} |"


def main() -> None:
    """Plan all rows and write."""
    rows = gpu_rows()
    write_atomically(PAGE, page(rows))
    draw(rows, PICTURE)
    draw_bars(rows, BARS)
    print(f"written: {PAGE}, {PICTURE}, {BARS}; docs/prediction.md takes these from it:")
    print("\n".join(f"| {' | '.join(cells)} |" for cells in summary_rows(rows)))


if __name__ == "__main__":
    main()
