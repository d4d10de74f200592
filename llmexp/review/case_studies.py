"""The case studies beside runs: what these reach on their models, and what that comes to for the review's."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from llmexp.compress.config import CompressRunConfig, Quantize, Sparsify
from llmexp.record.digits import rounded
from llmexp.report.columns import Column, ReportTable
from llmexp.report.references.beside import Beside
from llmexp.report.references.view import View
from llmexp.report.row import Row
from llmexp.review.printed import ORIGINAL_BITS, QMOE, SOURCE, SPARSEGPT, CaseStudy

MILLION, BILLION = 1e6, 1e9
VIEWS = {"sparsegpt": SPARSEGPT, "qmoe": QMOE}
_PLANNED = "planned from "


@dataclass(frozen=True)
class _Line:
    """The cells of a run or of the review."""

    run: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class CaseStudiesBeside(Beside):
    """A table for each case study that a section's runs are near to."""

    rows: Sequence[Row]

    @property
    def tables(self) -> Sequence[ReportTable]:
        """The tables, each of a system that at least one of the runs stands for."""
        return [view.table for view in self.views()]

    def views(self, asked: Container[str] = ()) -> Sequence[View]:
        """Return the case studies that these runs answer."""
        found = {"sparsegpt": self._measured(_prunes, by="sparsegpt"), "qmoe": self._measured(_takes_experts)}
        return [view_of(name, rows) for name, rows in found.items() if rows]

    def _measured(self, kind: Callable[[Row], bool], by: str = "") -> list[Row]:
        """Return the runs of a kind that were measured, or none where the system itself is not among them."""
        rows = [row for row in self.rows if kind(row) and row.metric("perplexity_ratio")]
        return rows if not by or any(_config(row).compress.method == by for row in rows) else []


def view_of(name: str, rows: Sequence[Row]) -> View:
    """Return the table of a case study: what the review prints, then a line for each run."""
    study = VIEWS[name]
    headings, of_run, printed = _SHOWN[name]
    lines = [_Line("the review", printed(study)), *(_Line(row.name, of_run(study, row)) for row in rows)]
    shown = [("run", tuple(line.run for line in lines))]
    shown += [(heading, tuple(line.cells[place] for line in lines)) for place, heading in enumerate(headings)]
    columns = [Column(heading, cells, left=heading == "run") for heading, cells in shown]
    return View(name, ReportTable(f"Beside the review: {study.name}", columns, list(_legend(study, rows))), rows=rows)


def _legend(study: CaseStudy, rows: Sequence[Row]) -> Iterator[str]:
    beside = f"; {study.beside}, which no run here answers: its experts are whole once loaded" if study.beside else ""
    yield f"the review: {study.model}, {study.in_time}{beside}; {SOURCE}"
    if study is QMOE:
        yield "nearest: QMoE's codes of less than a bit are in no library; these runs round experts to whole bits"
    if not rows:
        return
    planned = (
        "by the run's bits" if study is QMOE else "by the run's zeros, with a bit a weight that says where they are"
    )
    whole = ", all weights taken as experts'" if study is QMOE else ""
    yield f"{_PLANNED}the run, not measured: the review's model in 16 bits, compressed {planned}{whole}"
    yield "million weights/s: of compression; width, samples and machine are others than the review's"
    if study is QMOE:
        yield "times smaller, file: of all weights as the run's own original has them, attention and embeddings with it"


def _config(row: Row) -> CompressRunConfig:
    config = row.plan.config
    assert isinstance(config, CompressRunConfig)
    return config


def _prunes(row: Row) -> bool:
    return isinstance(_config(row).compress, Sparsify)


def _takes_experts(row: Row) -> bool:
    recipe = _config(row).compress
    return isinstance(recipe, Quantize) and recipe.layers == "experts"


def _value(row: Row, name: str) -> float:
    metric = row.metric(name)
    assert metric is not None, "a run that was measured has every metric of its task"
    return metric.mean


def _speed(row: Row) -> str:
    """Return the million weights that were compressed in a second."""
    weights = _value(row, "layers_bytes") * 8 / _value(row, "weight_bits")
    return rounded(weights / _value(row, "compress_time_s") / MILLION)


def _ratio(row: Row) -> str:
    return f"{_value(row, 'perplexity_ratio'):.4f}"


def _sparse_cells(study: CaseStudy, row: Row) -> tuple[str, ...]:
    zeros = _value(row, "sparsity")
    bits = ORIGINAL_BITS * (1 - zeros) + 1
    return (
        f"{100 * zeros:.3g}",
        rounded(zeros * study.weights / BILLION),
        f"{study.gigabytes_at(bits):,.0f}",
        _ratio(row),
        _speed(row),
    )


def _sparse_printed(study: CaseStudy) -> tuple[str, ...]:
    return study.zeros, study.removed, "", "", f"over {rounded(study.weights_per_s / MILLION)}"


def _expert_cells(study: CaseStudy, row: Row) -> tuple[str, ...]:
    bits = _value(row, "weight_bits")
    shrunk = _value(row, "original_file_bytes") / _value(row, "file_bytes")
    return (
        f"{bits:.3g}",
        f"{ORIGINAL_BITS / bits:.3g}",
        f"{study.gigabytes_at(bits):,.0f}",
        f"{shrunk:.3g}",
        _ratio(row),
        _speed(row),
    )


def _expert_printed(study: CaseStudy) -> tuple[str, ...]:
    return study.bits, study.smaller, study.gigabytes, "", "", f"over {rounded(study.weights_per_s / MILLION)}"


_COMMON = ("perplexity ratio", "million weights/s")
_SHOWN = {
    "sparsegpt": (
        ("zeros, %", "billion weights gone", "GB of the review's model", *_COMMON),
        _sparse_cells,
        _sparse_printed,
    ),
    "qmoe": (
        ("bits a weight", "times smaller than 16 bits", "GB of the review's model", "times smaller, file", *_COMMON),
        _expert_cells,
        _expert_printed,
    ),
}
