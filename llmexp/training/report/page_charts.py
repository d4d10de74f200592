"""The page's charts of runs that trained: Pareto front, batches, scaling, loss; and tables of methods by model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING

from llmexp.analysis.inference import half_width, mean_interval
from llmexp.analysis.window import duration_s
from llmexp.errors import RecordError
from llmexp.record.digits import rounded
from llmexp.record.result import ResultPoint
from llmexp.record.samples import StepSample
from llmexp.report.columns import Whisker
from llmexp.report.page.chart import MOST_LINES, Chart, ChartTrace, Matrix, drawn_once
from llmexp.report.run_plots import steps_of
from llmexp.report.signs import doubt_sign
from llmexp.training.convergence import SMOOTHED_SHARE
from llmexp.training.report.memory_column import MEMORY_WORDS, memory_kinds, memory_unit
from llmexp.training.report.row import TrainingRow
from llmexp.training.report.scaling_series import rate_of
from llmexp.training.report.searched_batch import MEMORY, memory_of, over_batches, trials_of

if TYPE_CHECKING:
    from llmexp.training.report.section import TrainingSection

UNIT = "tokens/s a rank"


def training_charts(section: TrainingSection) -> Iterator[Chart]:
    """Yield the charts for which there are enough runs."""
    yield from _pareto(section)
    yield from _batches(section)
    yield from _searches(section)
    yield from _scaling(section)
    yield from _losses(section)


def _pareto(section: TrainingSection) -> Iterator[Chart]:
    """Yield throughput over memory, with the runs that no other beats in both as a line."""
    kinds = memory_kinds(section)
    if len(kinds) != 1:
        return
    unit, divisor = memory_unit(section)
    known = [(row.memory[1] / divisor, _a_rank(row), row) for row in section.rows if row.memory and row.rate]
    if len({memory for memory, *_ in known}) < 2:  # the bars say the same
        return
    front = pareto_front([(memory, rate) for memory, rate, _ in known])
    every = ChartTrace(
        "runs",
        [x for x, *_ in known],
        [y for _, y, _ in known],
        [section.named(row) for *_, row in known],
        [_interval(row) for *_, row in known],
        "markers",
        [_marked(section.named(row), row) for *_, row in known],
    )
    best = ChartTrace(
        "Pareto-optimal",
        [known[index][0] for index in front],
        [known[index][1] for index in front],
        mode="lines",
    )
    note = "The line joins the Pareto-optimal runs; up and left is better."
    yield Chart(f"Throughput and memory ({MEMORY_WORDS[kinds[0]]})", f"{unit} a rank", UNIT, [every, best], note)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indexes of the (cost, gain) pairs than which none costs as little and gains more, by rising cost."""
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1])):
        if not front or points[index][1] > points[front[-1]][1]:
            front.append(index)
    return front


def _batches(section: TrainingSection) -> Iterator[Chart]:
    """Yield throughput, and memory, over the batch of a rank, for configurations with several batches."""
    by: dict[tuple[str, ...], list[TrainingRow]] = {}
    for row in section.rows:
        if row.rate:
            by.setdefault((row.model, row.method, *_without(row, "batch"), str(row.batch.accumulation)), []).append(row)
    found = [rows for rows in by.values() if len({row.batch.micro for row in rows}) > 1][:MOST_LINES]
    if not found:
        return
    speeds = [_over(rows, lambda row: row.batch.micro, _a_rank, _name(section, rows, "batch")) for rows in found]
    yield Chart("Throughput over the batch", "samples a rank and pass", UNIT, speeds)
    unit, divisor = memory_unit(section)
    sized = [[row for row in rows if row.memory] for rows in found]
    memory = [
        ChartTrace(
            _name(section, rows, "batch"),
            [row.batch.micro for row in rows],
            [row.memory[1] / divisor if row.memory else None for row in rows],
        )
        for rows in (sorted(rows, key=lambda row: row.batch.micro) for rows in sized if rows)
    ]
    if memory and len(memory_kinds(section)) == 1:
        kind = MEMORY_WORDS[memory_kinds(section)[0]]
        yield Chart("Memory over the batch", "samples a rank and pass", f"{unit} a rank", memory, kind)


def _searches(section: TrainingSection) -> Iterator[Chart]:
    """Yield speed and memory over the batches that searches for the largest one tried."""
    found = [(row, trials) for row in section.rows if (trials := trials_of(row))][:MOST_LINES]
    label, note = "samples a rank and pass", "Means of short runs; a line ends at the largest batch that fitted."
    speeds = [_tried(section, row, trials, "tokens_per_s", row.processes) for row, trials in found]
    if any(len(trace.x) > 1 for trace in speeds):
        yield Chart("Throughput over the batches tried", label, UNIT, speeds, note)
    kinds = {memory_of(trials) for _, trials in found} - {""}
    if len(kinds) == 1:
        kind = kinds.pop()
        memory = [_tried(section, row, trials, kind, 1e9) for row, trials in found]
        yield Chart(f"Memory over the batches tried ({MEMORY[kind]})", label, "GB a rank", memory, note)


def _tried(
    section: TrainingSection, row: TrainingRow, trials: Sequence[ResultPoint], metric: str, divisor: float
) -> ChartTrace:
    values = sorted(over_batches(trials, metric).items())
    means = [fmean(some) / divisor for _, some in values]
    halves = [half_width(some) / divisor if len(some) > 1 else None for _, some in values]
    intervals = [None if half is None else (mean - half, mean + half) for mean, half in zip(means, halves, strict=True)]
    return ChartTrace(section.named(row), [micro for micro, _ in values], means, intervals=intervals)


def _scaling(section: TrainingSection) -> Iterator[Chart]:
    """Yield scaling efficiency over ranks for each series."""
    traces = []
    for series in section.series[:MOST_LINES]:
        rows = sorted(series.rows, key=lambda row: row.processes)
        name = (
            f"{series.kind}: {series.least.model} {series.least.method}, batch {series.least.comparison_key['batch']}"
        )
        ratios = [series.efficiency_of(row) for row in rows]
        intervals = [ratio.ends(100) for ratio in ratios]
        percent = [100 * ratio.value for ratio in ratios]
        signs = [ratio.sign for ratio in ratios]
        traces.append(ChartTrace(name, [row.processes for row in rows], percent, (), intervals, labels=signs))
    if traces:
        note = (
            "100 % is a run on the fewest ranks, with nothing lost. Weak keeps a rank's batch, strong the global one."
        )
        yield Chart("Scaling efficiency over ranks", "ranks", "%", traces, note)


def _losses(section: TrainingSection) -> Iterator[Chart]:
    """Yield the loss over tokens and over time: smoothed where runs have a token budget, as it is elsewhere."""
    if section.converged:
        share = f"Mean over the last {SMOOTHED_SHARE:.0%} of the tokens up to each step."
        found = [
            (one.row, one.label, list(one.curve.tokens), list(one.curve.seconds), one.curve.smoothed)
            for one in list(section.converged.values())[:MOST_LINES]
        ]
    else:
        share = "Of the first repeat, mean over ranks, warm-up included."
        measured = [row for row in section.rows if row.rate]
        found = [
            (row, section.named(row), *curve) for row in measured[:MOST_LINES] if (curve := _raw_curve(row)) is not None
        ]
        share += f" The first {MOST_LINES} of {len(measured)} runs." * (len(measured) > MOST_LINES)
    if found:
        tokens, same = drawn_once([ChartTrace(name, x, y, mode="lines") for _, name, x, _, y in found])
        yield Chart("Loss over tokens", "tokens trained on", "loss", tokens, f"{share} {same}".strip(), from_zero=False)
        seconds = [ChartTrace(_marked(name, row), x, y, mode="lines") for row, name, _, x, y in found]
        yield Chart("Loss over time", "seconds of steps", "loss", seconds, share, from_zero=False)


def _raw_curve(row: TrainingRow) -> tuple[list[int], list[float], list[float]] | None:
    """Return tokens and seconds at each step's end, and its loss; None without samples that can be read."""
    try:
        steps = steps_of(row.folder.repeats()[0], StepSample)
    except (RecordError, IndexError):
        return None
    typed = [[sample for sample in step if isinstance(sample, StepSample)] for step in steps]
    tokens = accumulate(sum(sample.real_tokens for sample in step) for step in typed)
    seconds = accumulate(max(map(duration_s, step)) for step in typed)
    return (list(tokens), list(seconds), [fmean(sample.loss for sample in step) for step in typed]) if typed else None


def training_matrices(section: TrainingSection) -> list[Matrix]:
    """Return the best rate of each method on each model, and on each hardware, where there are several of both."""
    axes: dict[str, Callable[[TrainingRow], str]] = {
        "model": lambda row: row.model,
        "hardware": lambda row: row.hardware,
    }
    return [found for name, value in axes.items() if (found := _matrix(section, name, value))]


def _matrix(section: TrainingSection, name: str, value: Callable[[TrainingRow], str]) -> Matrix | None:
    methods = list(dict.fromkeys(row.method for row in section.rows))
    values = list(dict.fromkeys(map(value, section.rows)))
    if len(methods) < 2 or len(values) < 2:
        return None
    best: dict[tuple[str, str], TrainingRow] = {}
    for row in section.rows:
        key = (value(row), row.method)
        if key not in best or rate_of(row) > rate_of(best[key]):
            best[key] = row
    rows = []
    for one in values:
        highest = max((_a_rank(best[one, method]) for method in methods if (one, method) in best), default=0.0)
        rows.append((one, [_heat(best.get((one, method)), highest) for method in methods]))
    note = f"{UNIT}, the highest mean of each pair; shaded by the share of the highest in its row."
    return Matrix(f"Method by {name}", name, methods, rows, note)


def _heat(row: TrainingRow | None, highest: float) -> tuple[str, float | None]:
    if row is None:
        return "", None
    return (_marked(rounded(_a_rank(row)), row), _a_rank(row) / highest) if row.rate and highest else (row.state, None)


def _over(
    rows: Sequence[TrainingRow], x: Callable[[TrainingRow], int], y: Callable[[TrainingRow], float], name: str
) -> ChartTrace:
    ordered = sorted(rows, key=x)
    values = [x(row) for row in ordered], [y(row) for row in ordered]
    return ChartTrace(name, *values, (), [*map(_interval, ordered)], labels=[*map(doubt_sign, ordered)])


def _interval(row: TrainingRow) -> Whisker | None:
    return mean_interval(row.rate, 1 / row.processes) if row.rate else None


def _marked(name: str, row: TrainingRow) -> str:
    """Return a name or a number with the sign of its run."""
    return f"{name} {doubt_sign(row)}".rstrip()


def _name(section: TrainingSection, rows: Sequence[TrainingRow], varying: str) -> str:
    shown = section.shown(rows[0])
    own = [value for name, value in shown.items() if name not in (*section.shared, varying, "model") and value]
    return " ".join([rows[0].model, rows[0].method, *own])


def _without(row: TrainingRow, name: str) -> tuple[str, ...]:
    return tuple(value for key, value in row.comparison_key.items() if key != name)


def _a_rank(row: TrainingRow) -> float:
    return rate_of(row) / row.processes
