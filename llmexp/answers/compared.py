"""A comparison: of two runs, what differs and the ratios of their metrics; of two sets, a verdict on each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from llmexp.analysis.sameness import Sameness
from llmexp.answers.versioned import Answer, Figure, Part, SchemaName, figure
from llmexp.report.baseline import Measured
from llmexp.report.compare import Comparison, Difference, MetricRatio
from llmexp.report.equivalence import Equivalence
from llmexp.report.row import Row
from llmexp.report.sets import Outcome, PairedRow, SetComparison


class CompareSchema(SchemaName):
    """The schema of both kinds of this answer."""

    name: Literal["llmexp.compare"] = "llmexp.compare"
    version: Literal[1] = 1


class Differing(Part):
    """A value that differs; null where a side has none."""

    key: str
    a: str | None
    b: str | None


class ComparedRun(Part):
    """One of two runs."""

    folder: str
    id: str
    state: str
    reason: str


class RatioOfMetrics(Part):
    """A metric of both, and b over a with its 95 % interval; null where it is not known."""

    metric: str
    unit: str
    better: str = Field(description="higher or lower; empty where neither is better")
    a: Figure
    b: Figure
    ratio: float | None
    low: float | None
    high: float | None


class Judged(Part):
    """Whether both are the same, with the reason."""

    answer: Literal["same", "different", "unknown"]
    reason: str


class RunsCompared(Answer):
    """What `llmexp compare --json` prints of two runs."""

    schema_name: CompareSchema = Field(CompareSchema(), alias="schema")
    kind: Literal["runs"] = "runs"
    a: ComparedRun
    b: ComparedRun
    same_work: bool = Field(description="whether a sample of both did the same work; else speeds do not compare")
    work: list[Differing]
    settings: list[Differing]
    environment: list[Differing]
    ratios: list[RatioOfMetrics]
    training: Judged | None = Field(description="the same training? null where they were not asked for it")
    speeds: Judged | None = Field(description="equally fast? null where one was not measured")


class ComparedRow(Part):
    """A row of both sets."""

    name: str
    outcome: Outcome
    reason: str = Field(description="why there is no answer; empty where there is one")
    a: Figure | None
    b: Figure | None
    ratio: float | None = Field(description="b over a")
    low: float | None = Field(description="lower end of its 95 % interval")
    high: float | None = Field(description="the interval's upper end")
    p: float | None = Field(description="that both are equal, corrected for the number of rows by Holm")


class SetsCompared(Answer):
    """What `llmexp compare --json` prints of two sets."""

    schema_name: CompareSchema = Field(CompareSchema(), alias="schema")
    kind: Literal["sets"] = "sets"
    metric: str
    unit: str
    margin: float = Field(description="the least share of difference that matters")
    settings: list[Differing] = Field(description="what the sets differ in as a whole")
    environment: list[Differing]
    rows: list[ComparedRow]
    only_a: list[str]
    only_b: list[str]
    failed: bool = Field(description="whether a row is worse, lost, or another training: then the exit code is 1")
    complete: bool = Field(description="whether every row of both has an answer: else the exit code is 1 with --strict")


Compared = Annotated[RunsCompared | SetsCompared, Field(discriminator="kind")]


def runs_compared(found: Comparison) -> RunsCompared:
    """Return the answer about two runs."""
    return RunsCompared(
        a=_run(found.a),
        b=_run(found.b),
        same_work=found.same_work,
        work=_differing(found.work),
        settings=_differing(found.settings),
        environment=_differing(found.environment),
        ratios=[_ratio(ratio) for ratio in found.ratios],
        training=_judged(found.training),
        speeds=_judged(found.speeds) if found.same_work else None,
    )


def sets_compared(found: SetComparison) -> SetsCompared:
    """Return the answer about two sets."""
    return SetsCompared(
        metric=found.metric,
        unit=found.unit,
        margin=found.margin,
        settings=_differing(found.settings),
        environment=_differing(found.environment),
        rows=[_row(row, found.metric) for row in found.rows],
        only_a=list(found.only_a),
        only_b=list(found.only_b),
        failed=found.failed,
        complete=found.is_complete,
    )


def _run(row: Row) -> ComparedRun:
    return ComparedRun(folder=str(row.folder.path), id=row.id, state=row.state, reason=row.reason)


def _differing(differences: Sequence[Difference]) -> list[Differing]:
    return [Differing(key=one.key, a=one.a, b=one.b) for one in differences]


def _ratio(found: MetricRatio) -> RatioOfMetrics:
    a, b = figure(found.a), figure(found.b)
    assert a
    assert b
    low, high = found.interval or (None, None)
    known = a.mean is not None and b.mean is not None
    return RatioOfMetrics(
        metric=found.name,
        unit=found.unit,
        better=found.better,
        a=a,
        b=b,
        ratio=found.value if known else None,
        low=low if known else None,
        high=high if known else None,
    )


def _judged(found: Sameness | Equivalence | None) -> Judged | None:
    return Judged(answer=found.answer, reason=found.reason) if found else None


def _row(row: PairedRow, metric: str) -> ComparedRow:
    verdict = row.verdict
    estimate = verdict.estimate if verdict else None
    low, high = estimate.ratio_interval() if estimate else (None, None)
    return ComparedRow(
        name=row.name,
        outcome=row.outcome,
        reason=row.reason,
        a=_figure(row.a, metric),
        b=_figure(row.b, metric),
        ratio=estimate.ratio if estimate else None,
        low=low,
        high=high,
        p=verdict.p if verdict else None,
    )


def _figure(side: Measured, metric: str) -> Figure | None:
    return figure(side.metrics.get(metric))
