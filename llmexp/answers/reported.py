"""A report: its runs with how they ended, what they measured, and how far that can be relied on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llmexp.answers.versioned import Answer, Figure, Meaning, Part, SchemaName, figures
from llmexp.record.result import PointVerdict, RunResult, Stability
from llmexp.registry import get_task
from llmexp.report.repeat import anywhere
from llmexp.report.row import Row
from llmexp.report.section import ReportSection
from llmexp.report.table import Report
from llmexp.version import __version__


class ReportSchema(SchemaName):
    """The schema of this answer."""

    name: Literal["llmexp.report"] = "llmexp.report"
    version: Literal[1] = 1


class ReportedPoint(Part):
    """One of several answers of a run, such as a server's under one load."""

    params: dict[str, Any]
    metrics: dict[str, Figure | None]
    problem: str = Field(description="why it could not be measured; empty where it was")
    verdicts: dict[str, PointVerdict]


class ReportedRun(Part):
    """A run of the report."""

    folder: str
    id: str = Field(description="what is measured; the same words have the same id")
    stack: str | None = Field(description="the code, libraries and device that measured it")
    sweep: str
    task: str
    engine: str
    hardware: str
    subject: dict[str, str] = Field(description="what is compared, such as model and method")
    work: dict[str, str] = Field(description="what runs must share for their rates to be compared")
    processes: int = Field(description="ranks on all nodes together")
    devices: int
    state: str = Field(description="how it ended, or planned, running or waiting")
    reason: str
    evidence: str | None = Field(description="measured, emulated, simulated or predicted; null before its end")
    repeats: int
    rate: str = Field(description="the metric that says how fast it was; empty where the task has none")
    metrics: dict[str, Figure | None] = Field(description="by name; null where the run lacks one")
    stability: Stability | None = Field(description="how far the rate can be relied on")
    points: list[ReportedPoint]
    notes: list[str] = Field(description="what a reader has to know of it, in words")
    command: str = Field(description="the shell line that repeats it")


class RunsReported(Answer):
    """What `llmexp report --json` prints."""

    schema_name: ReportSchema = Field(ReportSchema(), alias="schema")
    written_by: str = Field(__version__, description="llmexp's version")
    runs: list[ReportedRun]
    metrics: dict[str, dict[str, Meaning]] = Field(description="what the metrics are, by task and name")
    unreadable: list[str] = Field(description="folders that could not be read, each with the reason")


def runs_reported(report: Report) -> RunsReported:
    """Return a report's answer."""
    tasks = dict.fromkeys(row.plan.config.task.name for row in report.rows)
    return RunsReported(
        runs=[_run(section, row) for section in report.sections for row in section.rows],
        metrics={task: _meanings(task) for task in tasks},
        unreadable=list(report.unreadable),
    )


def _meanings(task: str) -> dict[str, Meaning]:
    known = get_task(task).metrics
    return {name: Meaning(unit=spec.unit, better=spec.better, help=spec.help) for name, spec in known.items()}


def _run(section: ReportSection, row: Row) -> ReportedRun:
    plan, result = row.plan, row.result
    return ReportedRun(
        folder=str(row.folder.path),
        id=row.id,
        stack=result and result.stack,
        sweep=plan.config.sweep.name,
        task=plan.config.task.name,
        engine=plan.config.engine.name,
        hardware=row.hardware,
        subject=plan.name_fields,
        work={name: str(value) for name, value in row.comparison_key.items()},
        processes=plan.processes,
        devices=plan.devices,
        state=row.state,
        reason=row.reason,
        evidence=result and result.evidence,
        repeats=result.repeats if result else 0,
        rate=plan.rate,
        metrics=figures({name: row.metric(name) for name in get_task(plan.config.task.name).metrics}),
        stability=row.stability,
        points=_points(result) if result else [],
        notes=[note for note in section.notes_of(row) if note],
        command=anywhere(row.command),
    )


def _points(result: RunResult) -> list[ReportedPoint]:
    return [
        ReportedPoint(
            params=point.params, metrics=figures(point.metrics), problem=point.problem, verdicts=point.verdicts
        )
        for point in result.points
    ]
