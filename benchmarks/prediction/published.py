"""`python -m benchmarks.prediction.published` predicts the speeds that others published, which no fit has seen.

Errors are those of step times, as in `benchmarks.prediction.judge`. A source counts once, however many rows it has.
With one run kept, all predictions of a source on a card are calibrated by one of its runs, which is not judged then:
among those on the fewest cards, the one in the middle by length and micro batch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import expm1, log
from statistics import median

import numpy as np

from benchmarks.figure import Figure
from benchmarks.prediction.cells import Cell
from benchmarks.prediction.errors import of_errors
from benchmarks.prediction.published_batches import planned_as_run
from benchmarks.prediction.published_fits import TO_FIT, least_fit
from benchmarks.prediction.published_plans import Planned
from benchmarks.prediction.published_rows import Row, published_rows
from benchmarks.rates import rate
from llmexp.training.plan.fit import fit_of
from llmexp.training.plan.float8 import by_transformer_engine
from llmexp.training.predict import unpredicted
from llmexp.training.predict.calibration import multipliers_of
from llmexp.training.predict.interval import ONE_NODE, kind_of
from llmexp.training.predict.rates import constants

# Of runs that ran, and of the errors of steps that llmexp would start, in percent.
_NO, _OFF, _CALIBRATED, _IN_FP8 = 3.0, 12.0, 8.0, 15.0
# Judged apart too: A100, H100, H200, B200, L40S and RTX 4090, without older, rarer and cut-down cards.
COMMON = ("a100", "a100_40gb", "h100", "h200", "b200", "l40s", "rtx4090")


@dataclass(frozen=True)
class Judged:
    """A row, its plan, the speed of a card that is predicted, and what is said of its memory."""

    planned: Planned
    tokens_per_s: float | None = None
    reason: str = ""
    """Why there is no prediction."""
    fits: str = ""
    need_bytes: int | None = None

    @property
    def row(self) -> Row:
        """The row as published."""
        return self.planned.row

    @property
    def error(self) -> float | None:
        """The logarithm of the predicted over the measured step time; None without a prediction, or with a doubt."""
        if self.tokens_per_s is None or self.row.doubted:
            return None
        return log(self.row.tokens_per_s_per_device / self.tokens_per_s)

    @property
    def memory_error(self) -> float | None:
        """The logarithm of the estimated over the printed peak of a card."""
        need, printed = self.need_bytes, self.row.memory_gb
        return log(need / (printed * 1e9)) if need and printed else None


def judged(rows: Iterable[Row] | None = None) -> list[Judged]:
    """Predict rows, by default all."""
    return [_judged(planned_as_run(row)) for row in (published_rows() if rows is None else rows)]


def published_cells(rows: Iterable[Row] | None = None) -> list[Cell]:
    """Return the rows that have a plan and no doubt as cells, for judging alone; those in fp8 are judged apart."""
    made = [planned_as_run(row) for row in (published_rows() if rows is None else rows)]
    return [one.cell for one in made if one.plan and not one.row.doubted and not _in_fp8(one)]


def _judged(made: Planned) -> Judged:
    if made.plan is None:
        return Judged(made, reason=made.refused)
    micro, reason = made.plan.batch.micro, unpredicted(made.plan)
    fit, least = fit_of(made.plan, micro), least_fit(made)
    step_s = None if reason else made.cell.evidence(constants()).predicted_s({})
    return Judged(
        made,
        made.plan.amount / step_s / made.plan.dims.world_size if step_s else None,
        reason,
        "no" if TO_FIT in made.assumed else least.verdict if least else "",
        fit.need if fit else None,
    )


def corrected(group: Sequence[Judged]) -> list[float]:
    """Return the errors of a source's runs on a card, calibrated by the one of them that was kept and is left out.

    The multipliers are those of `llmexp calibrate`.
    """
    kept = _middle(group)
    multipliers = multipliers_of([kept.planned.cell.evidence(constants())])
    return [one.planned.cell.evidence(constants()).error(multipliers) for one in group if one is not kept]


def _middle(group: Sequence[Judged]) -> Judged:
    fewest = min(one.row.devices for one in group)
    there = sorted(
        (one for one in group if one.row.devices == fewest),
        key=lambda one: (one.row.seq_len, one.row.micro_batch or 0, one.row.model, str(one.row)),
    )
    return there[len(there) // 2]


@dataclass(frozen=True)
class Errors:
    """What became of some rows; errors are shares of what was measured."""

    name: str
    rows: int
    planned: int
    off: list[float]
    groups: list[list[Judged]]
    """The predicted rows of each source on a card."""
    refused_to_fit: int
    memory_off: list[float]

    @classmethod
    def of(cls, name: str, rows: Sequence[Judged]) -> Errors:
        """Sum up rows of one source or one card."""
        groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
        for one in rows:
            if one.error is not None:
                groups[one.row.group].append(one)
        return cls(
            name,
            len(rows),
            sum(one.planned.plan is not None for one in rows),
            [_off(one.error) for group in groups.values() for one in group if one.error is not None],
            list(groups.values()),
            sum(one.fits == "no" for one in rows),
            [_off(one.memory_error) for one in rows if one.memory_error is not None],
        )

    @cached_property
    def off_with_one(self) -> list[float]:
        """The errors where one run of each source on a card was kept."""
        return [_off(error) for group in self.groups for error in corrected(group)]

    @property
    def cells(self) -> list[str]:
        """One line of the table."""
        counts = [str(count) for count in (self.rows, self.planned, len(self.off), self.refused_to_fit)]
        return [self.name, *counts, *map(_percent, (self.off, self.off_with_one, self.memory_off))]


def by(rows: Sequence[Judged], key: str) -> list[Errors]:
    """Return the errors by a column of the rows, the largest part first."""
    parts: dict[str, list[Judged]] = defaultdict(list)
    for one in rows:
        parts[getattr(one.row, key)].append(one)
    return [Errors.of(name, part) for name, part in sorted(parts.items(), key=lambda part: -len(part[1]))]


def median_over_sources(rows: Sequence[Judged], *, one_kept: bool = False) -> float:
    """Return the median of the sources' median errors."""
    sources = [one.off_with_one if one_kept else one.off for one in by(rows, "source")]
    return median(median(off) for off in sources if off)


def published_figures() -> Iterator[Figure]:
    """Yield the errors over sources, of all rows and of parts, and how often a no was said of what ran.

    Rows in fp8, whose plans have intervals without held-out runs, stand apart.
    """
    known = judged()
    rows = [one for one in known if not _in_fp8(one.planned)]
    started = [one for one in rows if not one.planned.skipped]
    common = [one for one in started if one.row.hardware in COMMON]
    unstarted = [one for one in rows if one.row.hardware in COMMON]
    one_node = [one for one in rows if one.planned.plan and kind_of(one.planned.plan) == ONE_NODE]
    start = " that llmexp would start"
    on_common = f"{start} on common cards"
    with_unstarted = " on common cards, with layouts that llmexp would not start"
    parts = {"": rows, start: started, on_common: common, with_unstarted: unstarted, " on one node": one_node}
    on_cards = (on_common, with_unstarted)
    for name, some in parts.items():
        for kept, words in ((False, ""), (True, ", with one of its runs kept")):
            sources = [each.off_with_one if kept else each.off for each in by(some, "source")]
            medians = np.array([median(off) for off in sources if off])
            limit = _CALIBRATED if kept and name in on_cards else _OFF if name and not kept else None
            yield of_errors(f"published speeds{name}, median over sources{words}", medians, np.median, limit)
    kept_one = np.array([off for each in by(started, "source") for off in each.off_with_one])
    yield of_errors("published runs that one of their source and card calibrates", kept_one, np.median, _CALIBRATED)
    for precision in ("fp8", "bf16_mixed"):
        off = np.array([_off(one.error) for one in by_torchtitan(known, precision) if one.error is not None])
        yield of_errors(f"published speeds by torchtitan in {precision}", off, np.median, None)
    off = np.array([_off(one.error) for one in known if one.error is not None and _by_transformer_engine(one.planned)])
    yield of_errors("published speeds by TransformerEngine in fp8", off, np.median, _IN_FP8)
    said = [one.fits for one in rows if one.fits]
    yield rate("no is said of a published run", said.count("no"), len(said), limit=_NO)


def _in_fp8(made: Planned) -> bool:
    return made.plan is not None and made.plan.config.precision.linears is not None


def _by_transformer_engine(made: Planned) -> bool:
    return made.plan is not None and by_transformer_engine(made.plan.config)


def by_torchtitan(rows: Iterable[Judged], precision: str) -> list[Judged]:
    """Return the rows by torchtitan, which multiplies in fp8 by torchao too; other programs have other kernels."""
    return [one for one in rows if (one.row.framework, one.row.precision) == ("torchtitan", precision)]


def _off(error: float) -> float:
    return abs(expm1(error))


def _percent(off: Sequence[float]) -> str:
    return f"{100 * median(off):.1f} %" if off else "-"


_HEAD = ["", "rows", "planned", "predicted", "fit: no", "median error", "one run kept", "memory error"]


def _table(lines: Iterable[Errors]) -> str:
    cells = [_HEAD, *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    aligned = ("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells)
    return "\n".join(aligned)


def _counts(title: str, reasons: Iterable[str]) -> str:
    lines = (f"  {count:4}  {reason}" for reason, count in Counter(filter(None, reasons)).most_common())
    return "\n".join([title, *lines])


def main() -> None:
    """Print the errors by source, by card and by kind, and what was refused and assumed."""
    rows = judged()
    for key in ("source", "hardware", "kind", "framework", "precision"):
        print(_table(by(rows, key)), end="\n\n")
    print(_table([Errors.of("all rows", rows)]))
    print(f"median over sources: {100 * median_over_sources(rows):.1f} %")
    print(f"with one run of a source and card kept: {100 * median_over_sources(rows, one_kept=True):.1f} %\n")
    print(_counts("not predicted:", (one.reason for one in rows)))
    print(_counts("planned, but llmexp would not start it:", (one.planned.skipped for one in rows)))
    print(_counts("assumed:", (words for one in rows if one.error is not None for words in one.planned.assumed)))
    worst = sorted((one for one in rows if one.error is not None), key=lambda one: -abs(one.error or 0.0))[:15]
    print("\n".join(["worst, predicted over measured step time:", *map(_line, worst)]))


def _line(one: Judged) -> str:
    return f"  {1 + expm1(one.error or 0.0):5.2f}  {one.row}"


if __name__ == "__main__":
    main()
