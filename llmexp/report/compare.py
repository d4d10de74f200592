"""The comparison of two runs: different settings and work, and the ratios of their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmexp.analysis.inference import Estimate, log_ratio
from llmexp.analysis.metric import Better
from llmexp.analysis.sameness import Sameness, where_asked
from llmexp.record.flat import flat
from llmexp.record.folder import RunFolder
from llmexp.record.naming import NOT_MEASURED
from llmexp.record.plan import RunPlan
from llmexp.record.result import Metric, RunStatus
from llmexp.registry import get_task
from llmexp.report.equivalence import Equivalence, of_rows
from llmexp.report.row import OOM, Row, read_row

WHY_PRECISION = "precision.chosen_because"
# These differ between any two moments.
_PASSING = ("load_average",)
# These are long, and in another order each time.
_EVIDENCE = ("kernels",)
CHANGES_DIFFER = "uncommitted changes differ"


@dataclass(frozen=True)
class Difference:
    """A value that differs between the runs; None for a run without it."""

    key: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class MetricRatio:
    """A metric of both runs, and b over a; the ratio has an interval where at least one run has several repeats."""

    name: str
    a: Metric
    b: Metric
    better: Better = ""
    unit: str = ""

    @property
    def value(self) -> float | None:
        """The ratio b over a; None where a is zero."""
        return self.b.mean / self.a.mean if self.a.mean else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the ratio."""
        found: Estimate | None = log_ratio(self.a, self.b)
        return found.ratio_interval() if found else None


@dataclass(frozen=True)
class Comparison:
    """Differences between two runs, and the ratios of their metrics.

    `settings` also holds what ran. Speeds may be compared if `work` is empty.
    """

    a: Row
    b: Row
    settings: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    work: tuple[Difference, ...]
    ratios: tuple[MetricRatio, ...]

    @property
    def same_work(self) -> bool:
        """Tell whether a step of both did the same work.

        Task, model, parameters, positions, data, precision, optimizer and adapter count as work.
        """
        return not self.work

    @property
    def training(self) -> Sameness | None:
        """The answer whether both did the same training; None where they were not asked for it."""
        return where_asked(self.a.trained, self.b.trained)

    @property
    def speeds(self) -> Equivalence | None:
        """The answer whether both are equally fast; None where one was not measured or their rates differ in kind."""
        return of_rows(self.a, self.b)


def compare(a: RunFolder, b: RunFolder) -> Comparison:
    """Compare two runs, b against a; raises RecordError where a folder cannot be read."""
    first, second = read_row(a), read_row(b)
    return Comparison(
        first,
        second,
        settings=_differences(_settings(first), _settings(second)),
        environment=_differences(environment_of(first), environment_of(second)),
        work=_differences(flat(first.done), flat(second.done)),
        ratios=tuple(_ratios(first, second)),
    )


def settings_of(plan: RunPlan) -> dict[str, str]:
    """Return the configuration that is measured, one value a key, with the plan's name fields."""
    found = flat(plan.config.model_dump(mode="json", exclude=set(NOT_MEASURED)) | plan.name_fields)
    found.pop(WHY_PRECISION, None)
    return found


def _settings(row: Row) -> dict[str, str]:
    found = settings_of(row.plan) | flat({"engine_config": row.plan.engine_config})
    if row.result:
        what_ran = {key: value for key, value in row.result.what_ran.items() if key not in _EVIDENCE}
        found |= flat({"what_ran": what_ran, "stack": row.result.stack})
    return found


def environment_of(row: Row) -> dict[str, str]:
    """Return the environment that a run recorded, one value a key, without what differs between any two moments."""
    found = {key: value for key, value in (row.result.environment if row.result else {}).items() if key not in _PASSING}
    if found.get("git"):
        found["git"] = {name: _checkout(checkout) for name, checkout in found["git"].items()}
    return flat(found)


def _checkout(checkout: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a checkout with its uncommitted changes as one value, the start of their digest."""
    if checkout is None:
        return None
    kept = checkout.get("diff")
    changes = (kept["sha256"][:12] if kept else "not kept") if checkout["dirty"] else "none"
    return {key: value for key, value in checkout.items() if key not in ("dirty", "diff")} | {CHANGES_DIFFER: changes}


def _differences(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[Difference, ...]:
    return tuple(Difference(key, a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key))


def _ratios(a: Row, b: Row) -> list[MetricRatio]:
    names = a.result.metrics if a.result else {}
    pairs = ((name, a.metric(name), b.metric(name)) for name in names)
    known = get_task(a.plan.config.task.name).metrics
    found = ((name, first, second) for name, first, second in pairs if first and second and (first.mean or second.mean))
    meant = {name: (spec.better, spec.unit) for name, spec in known.items()}
    return [MetricRatio(name, first, second, *meant.get(name, ("", ""))) for name, first, second in found]


def ending(row: Row) -> str:
    """Describe in one line how a run stands or ended."""
    if row.doubt:
        return f"{row.state}, {row.doubt}"
    return row.state if row.state in (RunStatus.SUCCESS, OOM) or not row.reason else f"{row.state}: {row.reason}"
