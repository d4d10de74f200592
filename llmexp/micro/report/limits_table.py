"""The limits of each run beside each other, with the size that each is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from llmexp.analysis.metric import MetricSpec
from llmexp.micro.limits import HighestRate, cache_bytes
from llmexp.micro.plan.micro_plan import TIMES_CACHE
from llmexp.micro.report.units import in_bytes, prefix_of
from llmexp.record.digits import rounded
from llmexp.record.result import RunResult, RunStatus
from llmexp.registry import families
from llmexp.report.columns import Column, Detail
from llmexp.report.row import Row

IN_CACHE, CACHE_UNKNOWN = "in the cache", "cache unknown"


def limits_table(rows: Sequence[Row], specs: Mapping[str, MetricSpec], label: Callable[[Row], str]) -> Detail | None:
    """Return the limits that any of the runs has points of, a column for each run; None where there is none."""
    measured = [(row, row.result) for row in rows if row.result and row.state == RunStatus.SUCCESS]
    found = [(row, result, [_cell(result, spec) for spec in specs.values()]) for row, result in measured]
    found = [each for each in found if any(each[2])]
    shown = [number for number in range(len(specs)) if any(cells[number] for _, _, cells in found)]
    if not shown:
        return None
    helps = [spec.help for spec in specs.values()]
    columns = [
        Column("limit", tuple(helps[number] for number in shown), left=True),
        *(Column(label(row), tuple(cells[number] for number in shown)) for row, _, cells in found),
    ]
    legend = dict.fromkeys(line for _, result, cells in found for line in _legend(result, specs, cells))
    return Detail("what this machine can do at most, of one rank while all are at work", columns, list(legend))


def _cell(result: RunResult, spec: MetricSpec) -> str:
    """Return the limit and the bytes of its point, or why points set none."""
    limit, metric = _limit(spec), result.metrics.get(spec.name)
    if metric is None:
        points = limit.among(result.points)
        known = any(cache_bytes(point, result.what_ran) for point in points)
        return (IN_CACHE if known else CACHE_UNKNOWN) if points else ""
    prefix, divisor = prefix_of(metric.mean)
    point = limit.set_by(result.points, result.what_ran)
    size = point.params.get("bytes") if point else None
    at = f" at {in_bytes(size)}" if size else ""
    return f"{rounded(metric.mean / divisor)} {prefix}{spec.unit.replace('bytes', 'B')}{at}"


def _legend(result: RunResult, specs: Mapping[str, MetricSpec], cells: Sequence[str]) -> Iterator[str]:
    """Say why there is no limit, and what would give one."""
    if CACHE_UNKNOWN in cells:
        yield f"{CACHE_UNKNOWN}: the system does not tell its size, so that no rate is known to be the memory's"
    for spec, cell in zip(specs.values(), cells, strict=True):
        if cell == IN_CACHE:
            size = cache_bytes(_limit(spec).among(result.points)[0], result.what_ran) or 0
            yield (
                f"{IN_CACHE}: no point's data are {TIMES_CACHE} times as large as the cache, {in_bytes(size)}, "
                f"so that no rate is the memory's; larger {_larger()} are"
            )


def _larger() -> str:
    *others, last = [family.larger for family in families() if family.larger]
    return f"{', '.join(others)} or {last}"


def _limit(spec: MetricSpec) -> HighestRate:
    assert isinstance(spec.function, HighestRate)
    return spec.function
