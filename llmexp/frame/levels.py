"""The rows of each level, made of one run's records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llmexp.record.flat import one_level
from llmexp.record.result import Metric
from llmexp.record.samples import Sample, read_samples
from llmexp.registry import get_task
from llmexp.report.row import Row

# How a run was recorded, limited or told about is no setting of what it measures.
_NO_SETTINGS = {"node", "tracking", "sweep", "budget", "force", "rerun"}


def runs(row: Row) -> Iterator[dict[str, Any]]:
    """Yield the run: how it ended, its metrics, and its settings."""
    result = row.result
    told: dict[str, Any] = {"reason": row.reason, "evidence": result.evidence if result else None}
    if result:
        told |= {"repeats": result.repeats, "started_at": result.started_at, "ended_at": result.ended_at}
        told |= {"stack": result.stack, "host": result.environment.get("host")}
        told["stability"] = result.stability.verdict if result.stability else None
    metrics = _metrics(result.metrics) if result else {}
    yield (
        _named(row)
        | told
        | metrics
        | {name: value for name, value in _settings(row).items() if name not in metrics}
        | {"command": row.command}
    )


def repeats(row: Row) -> Iterator[dict[str, Any]]:
    """Yield each repeat that ended well: the metrics of this process alone."""
    task, plan = get_task(row.plan.config.task.name), row.plan
    constants = task.constants(plan)
    began_at = {turn.repeat: turn.began_at for turn in row.result.turns} if row.result else {}
    for index in range(row.result.repeats if row.result else 0):
        repeat = task.read(row.folder.repeat(index), plan)
        measured = {name: spec.function(repeat, constants) for name, spec in task.metrics.items()}
        values = {name: None if one is None else one.value for name, one in measured.items()}
        yield _named(row) | {"repeat": index, "began_at": began_at.get(index)} | values


def points(row: Row) -> Iterator[dict[str, Any]]:
    """Yield each point of a run that gives several: a load of a server, a size of a microbenchmark."""
    for index, point in enumerate(row.result.points if row.result else []):
        told = {"point": index, "problem": point.problem}
        told |= {f"{question}_verdict": verdict.answer for question, verdict in point.verdicts.items()}
        yield _named(row) | told | one_level(point.params) | _metrics(point.metrics)


def samples(row: Row, level: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a level that tasks name, such as steps; none where the run's task has another level."""
    task = get_task(row.plan.config.task.name)
    if task.level == level:
        for named, sample in _samples(row):
            yield from (named | columns for columns in task.level_rows(sample))


def _samples(row: Row) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield all samples, of runs that did not end too; raises RecordError, ValueError or OSError for damaged ones."""
    for repeat in row.folder.repeats():
        for rank in range(row.processes):
            path = repeat / f"samples.{rank}.jsonl"
            if path.exists():
                named = _named(row) | {"repeat": int(repeat.suffix[1:]), "rank": rank}
                yield from ((named, sample) for sample in read_samples(path, _sample_type(row)))


def _sample_type(row: Row) -> type[Sample]:
    return get_task(row.plan.config.task.name).sample_type


def _named(row: Row) -> dict[str, Any]:
    """Return the columns that every level has; a status is a RunStatus, 'planned', 'running' or 'waiting'."""
    config = row.plan.config
    named: dict[str, Any] = {
        "id": row.id,
        "path": str(row.folder.path),
        "sweep": config.sweep.name,
        "task": config.task.name,
    }
    named |= {name: getattr(row.result, name, None) for name in ("model", "method")} | dict(row.plan.name_fields)
    status = row.result.status.value if row.result else row.state
    more = {"engine": config.engine.name, "hardware": row.hardware, "world_size": row.plan.devices}
    return named | more | {"processes": row.processes, "status": status}


def _metrics(metrics: Mapping[str, Metric | None]) -> dict[str, Any]:
    """Return three columns a metric: its mean over repeats, and its deviations between and within them."""
    found: dict[str, Any] = {}
    for name, metric in metrics.items():
        found[name] = metric.mean if metric else None
        found[f"{name}_std_between_repeats"] = metric.std_between_repeats if metric else None
        found[f"{name}_std_within_run"] = metric.std_within_run if metric else None
    return found


def _settings(row: Row) -> dict[str, Any]:
    """Return the configuration, batch.micro as batch_micro; a section's name is the section's own column."""
    config = row.plan.config.model_dump(mode="json", exclude=_NO_SETTINGS)
    named = {name.removesuffix("_name"): value for name, value in one_level(config).items()}
    known = {*_named(row), "hardware_sources"}
    return {name: value for name, value in named.items() if name not in known}
