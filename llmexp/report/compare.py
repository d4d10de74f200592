"""Two runs side by side: what was set and ran differently, whether they did the same work, and the ratios of their metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot
from typing import Any

from llmexp.record.folder import RunFolder
from llmexp.record.naming import NOT_MEASURED
from llmexp.record.result import Metric, RunStatus
from llmexp.report.row import OOM, Row, read_row

WHY_PRECISION = "precision.chosen_because"
# What differs between any two moments.
_PASSING = ("load_average",)
# Long, and in another order each time.
_EVIDENCE = ("kernels",)
CHANGES_DIFFER = "uncommitted changes differ"


@dataclass(frozen=True)
class Difference:
    """A value that the runs have not in common; None where one has it not."""

    key: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class Ratio:
    """A metric of both runs, and b over a with the deviation that follows from those between repeats (first order), where both are known."""

    name: str
    a: Metric
    b: Metric

    @property
    def value(self) -> float | None:
        """b over a; None where a is zero."""
        return self.b.mean / self.a.mean if self.a.mean else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the ratio between repeats."""
        deviations = self.a.std_between_repeats, self.b.std_between_repeats
        if None in deviations or not self.a.mean or not self.b.mean:
            return None
        return abs(self.b.mean / self.a.mean) * hypot((deviations[0] or 0) / self.a.mean, (deviations[1] or 0) / self.b.mean)


@dataclass(frozen=True)
class Comparison:
    """Differences in the configuration and in what ran, in the environment, in the work (none: the speeds may be compared), and ratios."""

    a: Row
    b: Row
    settings: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    work: tuple[Difference, ...]
    ratios: tuple[Ratio, ...]

    @property
    def same_work(self) -> bool:
        """Whether both runs trained the same number of parameters on as many positions a step in the same precision."""
        return not self.work


def compare(a: RunFolder, b: RunFolder) -> Comparison:
    """Compare two runs, b against a; raises RecordError where a folder cannot be read."""
    first, second = read_row(a), read_row(b)
    return Comparison(
        first,
        second,
        settings=_differences(_settings(first), _settings(second)),
        environment=_differences(_environment(first), _environment(second)),
        work=_differences(_work(first), _work(second)),
        ratios=tuple(_ratios(first, second)),
    )


def _settings(row: Row) -> dict[str, str]:
    config = {key: value for key, value in row.plan["config"].items() if key not in NOT_MEASURED}
    found = _flat(config | {"method": row.method}) | _flat({"engine_config": row.plan.get("engine_config", {})})
    found.pop(WHY_PRECISION, None)
    if row.result:
        what_ran = {key: value for key, value in row.result.what_ran.items() if key not in _EVIDENCE}
        found |= _flat({"what_ran": what_ran, "stack": row.result.stack})
    return found


def _environment(row: Row) -> dict[str, str]:
    found = {key: value for key, value in (row.result.environment if row.result else {}).items() if key not in _PASSING}
    if found.get("git"):
        found["git"] = {name: _checkout(checkout) for name, checkout in found["git"].items()}
    return _flat(found)


def _checkout(checkout: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A checkout with its uncommitted changes as one value: the start of their digest."""
    if checkout is None:
        return None
    kept = checkout.get("diff")
    changes = (kept["sha256"][:12] if kept else "not kept") if checkout["dirty"] else "none"
    return {key: value for key, value in checkout.items() if key not in ("dirty", "diff")} | {CHANGES_DIFFER: changes}


def _work(row: Row) -> dict[str, str]:
    """What one step works through; counted where the run has counted, else as planned."""
    counted = {name: row.metric(name) for name in ("parameters", "trainable_parameters")}
    counts = {name: int(metric.mean) if metric else row.plan.get(name) for name, metric in counted.items()}
    precision = row.plan["config"]["precision"]["name"]
    return _flat({"model": row.model, "global batch": row.batch.global_, "seq_len": row.seq_len, **counts, "precision": precision})


def _differences(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[Difference, ...]:
    return tuple(Difference(key, a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key))


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, Mapping) and value:
        return {key: leaf for name, inner in value.items() for key, leaf in _flat(inner, f"{path}.{name}" if path else str(name)).items()}
    return {path: value if isinstance(value, str) else json.dumps(value)}


def _ratios(a: Row, b: Row) -> list[Ratio]:
    names = a.result.metrics if a.result else {}
    pairs = ((name, a.metric(name), b.metric(name)) for name in names)
    return [Ratio(name, first, second) for name, first, second in pairs if first and second and (first.mean or second.mean)]


def ending(row: Row) -> str:
    """How a run stands, in one line."""
    if row.doubt:
        return f"{row.state}, {row.doubt}"
    return row.state if row.state in (RunStatus.SUCCESS, OOM) or not row.reason else f"{row.state}: {row.reason}"
