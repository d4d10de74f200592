"""The set-up of a section's runs as a paragraph ready for a paper, from their records alone."""

from __future__ import annotations

from collections.abc import Iterable

from llmexp.report.provenance import provenance
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.report.text_list import listed

_WORDS = {
    "model": "model",
    "hardware": "hardware",
    "engine": "engine",
    "ranks": "ranks",
    "layout": "layout",
    "batch": "batch a rank",
    "seq_len": "sequence length",
    "data": "data",
    "precision": "precision",
    "optimizer": "optimizer",
    "dtype": "data type",
    "runtime": "runtime",
}


def setup_paragraph(section: ReportSection) -> str:
    """Return sentences on what was measured, with which settings, how often and where; empty without a measured run."""
    measured = [row for row in section.rows if row.result and row.state == "success"]
    if not measured:
        return ""
    sentences = [_subjects(measured), _settings(measured), _window(measured), *provenance(measured)]
    return " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences if sentence)


def _subjects(rows: list[Row]) -> str:
    names = {name: _values(row.plan.name_fields[name] for row in rows) for name in rows[0].plan.name_fields}
    return "we measured " + "; ".join(f"{name} {listed(values)}" for name, values in names.items())


def _settings(rows: list[Row]) -> str:
    told = {
        name: _values(row.comparison_key.get(name, "") for row in rows)
        for name in _WORDS
        if name not in rows[0].plan.name_fields
    }
    said = [f"{_WORDS[name]} {listed(values)}" for name, values in told.items() if values and values != ["here"]]
    return "; ".join(said)


def _window(rows: list[Row]) -> str:
    """Say how many samples were measured and discarded, and over how many repeats."""
    plans = [row.plan for row in rows]
    counts = _values(
        f"{plan.measured_samples} {plan.sample_name}s after {plan.samples - plan.measured_samples} of warm-up"
        for plan in plans
        if plan.samples
    ) + _values(f"{plan.asked_s:g} s of {plan.sample_name}s" for plan in plans if plan.asked_s)
    repeats = _values(str(row.rate.n) for row in rows if row.rate)
    several = repeats != ["1"]
    said = [f"each run measured {listed(counts)}"] if counts else []
    if repeats:
        said.append(f"in {listed(repeats)} fresh process{'es' * several}")
    if several and repeats:
        said.append("figures are means with the standard deviation between them")
    return ", ".join(said)


def _values(values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]
