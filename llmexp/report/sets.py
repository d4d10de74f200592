"""The comparison of two sets of runs, row by row, with a verdict on each that is corrected for the number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from llmexp.analysis.many_rows import MARGIN, RowsVerdict, verdicts
from llmexp.analysis.metric import Better, MetricSpec
from llmexp.analysis.sameness import UNKNOWN, Sameness, is_another, where_asked
from llmexp.errors import ConfigError, unknown
from llmexp.record.result import Metric
from llmexp.registry import get_task
from llmexp.report.baseline import Measured
from llmexp.report.compare import Difference
from llmexp.report.pool import pool

Outcome = Literal["better", "worse", "within", "unknown", "lost", "another training", "not compared"]
Key = tuple[tuple[str, str], ...]
# What names a row, where it is set and tells rows apart.
_NAMED = ("task.name", "engine.name", "model.name", "model", "method")


@dataclass(frozen=True)
class PairedRow:
    """One row of both sets; `name` tells it from the other rows, and `reason` says why there is no answer.

    `training` is the answer whether both did the same training, where they were asked for it.
    """

    name: str
    a: Measured
    b: Measured
    outcome: Outcome
    verdict: RowsVerdict | None
    reason: str = ""

    @property
    def training(self) -> Sameness | None:
        """The answer whether both did the same training; None where they were not asked for it, or not measured."""
        return where_asked(self.a.trained, self.b.trained) if self.a.is_measured and self.b.is_measured else None

    @property
    def lacks_evidence(self) -> bool:
        """Tell whether the first set alone keeps nobody from knowing that both did the same training."""
        told = self.b.trained is not None and self.b.trained.has_data
        return told and self.training is not None and self.training.answer == UNKNOWN


@dataclass(frozen=True)
class SetComparison:
    """Two sets beside each other; `settings` and `environment` are what they differ in as a whole."""

    metric: str
    unit: str
    margin: float
    settings: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    rows: tuple[PairedRow, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    repeated: int
    pooled: bool

    @property
    def failed(self) -> bool:
        """Tell whether a row is worse, did another training, or was measured in the first set alone."""
        return any(row.outcome in ("worse", "lost", "another training") for row in self.rows)

    @property
    def is_complete(self) -> bool:
        """Tell whether every row of both sets has an answer."""
        answered = all(row.outcome in ("better", "worse", "within", "lost", "another training") for row in self.rows)
        return answered and not any(row.lacks_evidence for row in self.rows) and not self.only_a and not self.only_b


def compare_sets(
    a: Sequence[Measured],
    b: Sequence[Measured],
    metric: str | None = None,
    margin: float = MARGIN,
    pooled: bool = False,
) -> SetComparison:
    """Compare the second set with the first, by a metric or else the task's rate.

    Of runs of one set that measure the same the last to end counts, or all repeats if they are pooled. Raises
    ConfigError where no row is in both, or the metric is not known or has no better direction.
    """
    chosen = metric or a[0].rate
    spec = spec_of(chosen, {_task(row) for row in (*a, *b)})
    if chosen.endswith("_bytes"):  # what makes a speed unstable leaves the memory as it is
        a, b = ([row.model_copy(update={"unstable": ""}) for row in rows] for rows in (a, b))
    apart = _differing([row.settings for row in a], [row.settings for row in b])
    first, second = _by_key(a, apart, pooled), _by_key(b, apart, pooled)
    shared = [key for key in first if key in second]
    if not shared:
        raise ConfigError(_nothing_in_common(a, b))
    names = _names([*first, *second])
    rows = _judged([(names[key], first[key], second[key]) for key in shared], chosen, spec.better, margin)
    return SetComparison(
        chosen,
        spec.unit,
        margin,
        settings=_differences(a, b, "settings"),
        environment=_differences(a, b, "environment"),
        rows=tuple(rows),
        only_a=tuple(names[key] for key in first if key not in second),
        only_b=tuple(names[key] for key in second if key not in first),
        repeated=len(a) - len(first) + len(b) - len(second),
        pooled=pooled,
    )


def spec_of(metric: str, tasks: Iterable[str]) -> MetricSpec:
    """Return what the tasks say of a metric; raises ConfigError where none has it, or neither direction is better."""
    specs = {name: spec for task in sorted(tasks) for name, spec in get_task(task).metrics.items() if spec.better}
    if metric not in specs:
        raise unknown("metric with a better direction", metric, specs)
    return specs[metric]


def _task(row: Measured) -> str:
    return row.settings.get("task.name", "")


def _differing(a: Sequence[Mapping[str, str]], b: Sequence[Mapping[str, str]]) -> dict[str, tuple[str | None, ...]]:
    """Return the keys that have one value in all of a, and one other value in all of b."""
    found = {}
    for key in dict.fromkeys(key for one in (*a, *b) for key in one):
        first, second = {one.get(key) for one in a}, {one.get(key) for one in b}
        if len(first) == len(second) == 1 and first != second:
            found[key] = (*first, *second)
    return found


def _differences(a: Sequence[Measured], b: Sequence[Measured], part: str) -> tuple[Difference, ...]:
    ran = ([getattr(row, part) for row in rows if getattr(row, part)] for rows in (a, b))
    return tuple(Difference(key, *values) for key, values in _differing(*ran).items())


def _by_key(rows: Sequence[Measured], apart: Iterable[str], pooled: bool) -> dict[Key, Measured]:
    """Return the rows by what they measure, in the order in which they ended."""
    left_out = set(apart)
    found: dict[Key, list[Measured]] = {}
    for row in sorted(rows, key=lambda row: row.ended_at):
        key = tuple(sorted((key, value) for key, value in row.settings.items() if key not in left_out))
        found.setdefault(key, []).append(row)
    return {key: pool(runs) if pooled else runs[-1] for key, runs in found.items()}


def _names(keys: Sequence[Key]) -> dict[Key, str]:
    """Name each row by its method or the like, and by the settings that not all rows share."""
    shared = set(keys[0]).intersection(*keys)
    found = {}
    for key in keys:
        settings = dict(key)
        own = [settings[name] for name in _NAMED[3:] if name in settings] or [settings.get("model.name", "")]
        others = [f"{name}={value}" for name, value in key if (name, value) not in shared and name not in _NAMED[3:]]
        found[key] = " ".join([*own, *others])
    return found


def _nothing_in_common(a: Sequence[Measured], b: Sequence[Measured]) -> str:
    """Say which settings have no value in common, as the reason why no rows can be paired."""
    apart = []
    for key in dict.fromkeys(key for row in (*a, *b) for key in row.settings):
        first, second = ({row.settings.get(key, "nothing") for row in rows} for rows in (a, b))
        if not first & second and (len(first) > 1 or len(second) > 1):
            apart.append(
                f"{key} is {', '.join(sorted(first))} in the first and {', '.join(sorted(second))} in the other"
            )
    return f"the two sets have no row in common: {'; '.join(apart[:3]) or 'each row differs in several settings'}"


def _judged(
    pairs: Sequence[tuple[str, Measured, Measured]], metric: str, better: Better, margin: float
) -> list[PairedRow]:
    """Judge all rows that can be compared together, in the order of the pairs."""
    refused = [_refusal(a, b, metric) for _, a, b in pairs]
    compared = [
        (a.metrics[metric], b.metrics[metric]) for (_, a, b), why in zip(pairs, refused, strict=True) if not why
    ]
    answers = iter(verdicts(compared, margin))
    return [
        PairedRow(name, a, b, why[0], None, why[1]) if why else _row(name, a, b, next(answers), better)
        for (name, a, b), why in zip(pairs, refused, strict=True)
    ]


def _refusal(a: Measured, b: Measured, metric: str) -> tuple[Outcome, str] | None:
    """Say why a pair is not compared; None where it is."""
    if a.is_measured and not b.is_measured:
        return "lost", f"measured before, now {_ending(b)}"
    if not a.is_measured:
        return "not compared", f"{_ending(a)} in the first set"
    if a.work != b.work:
        names = [name for name in dict.fromkeys([*a.work, *b.work]) if a.work.get(name) != b.work.get(name)]
        said = ", ".join(f"{name} {a.work.get(name, '-')} and {b.work.get(name, '-')}" for name in names)
        return "not compared", f"not the same work: {said}"
    training = where_asked(a.trained, b.trained)
    if is_another(training):
        return "another training", f"not the same training, so not compared: {training.reason}"
    missing = [side for side, row in (("first", a), ("second", b)) if not _is_positive(row.metrics.get(metric))]
    return ("not compared", f"no {metric} in the {' and the '.join(missing)} set") if missing else None


def _is_positive(metric: Metric | None) -> bool:
    return metric is not None and metric.mean > 0


def _ending(row: Measured) -> str:
    return f"{row.state}: {row.reason}" if row.reason else row.state


def _row(name: str, a: Measured, b: Measured, verdict: RowsVerdict, better: Better) -> PairedRow:
    """Turn a verdict on numbers into one on runs: what disturbed a measurement as a whole rules out a difference."""
    if verdict.answer == "within":
        return PairedRow(name, a, b, "within", verdict)
    unstable = [
        f"the {side} measurement is unstable ({row.unstable})"
        for side, row in (("first", a), ("second", b))
        if row.unstable
    ]
    if unstable:
        return PairedRow(name, a, b, "unknown", verdict, " and ".join(unstable))
    if verdict.answer == "unknown":
        return PairedRow(name, a, b, "unknown", verdict, _more(verdict))
    return PairedRow(name, a, b, "better" if verdict.answer == better else "worse", verdict)


def _more(verdict: RowsVerdict) -> str:
    if verdict.estimate is None:
        return "one process does not show how much processes differ: set measure.repeats=3 or more for both"
    if verdict.repeats is None:
        return "more than 50 repeats would be needed: find what makes them differ, or choose another margin"
    return f"about measure.repeats={verdict.repeats} of both would settle it"
