"""The rows of each level, made of one run's records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from llmexp.record.requests import RequestSample
from llmexp.record.result import Metric
from llmexp.record.samples import CallSample, Sample, read_samples
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
        yield _named(row) | told | _flat(point.params) | _metrics(point.metrics)


def steps(row: Row) -> Iterator[dict[str, Any]]:
    """Yield each rank's samples of a run that is neither served nor a microbenchmark: of training its steps."""
    if not issubclass(_sample_type(row), RequestSample | CallSample):
        for named, sample in _samples(row):
            yield named | {"duration_s": sample.t_end_s - sample.t_start_s} | _flat(_fields(sample))


def requests(row: Row) -> Iterator[dict[str, Any]]:
    """Yield each request of a served run; latencies are from when it was due."""
    for named, sample in _samples(row):
        if isinstance(sample, RequestSample):
            yield named | _fields(sample) | _latencies(sample)


def calls(row: Row) -> Iterator[dict[str, Any]]:
    """Yield each timed call of a microbenchmark; a point has several, which share its index."""
    for named, sample in _samples(row):
        if isinstance(sample, CallSample):
            fields = {name: value for name, value in _fields(sample).items() if name != "times_s"}
            times_s: list[float | None] = [*sample.times_s] or [None]
            yield from (named | fields | {"call_time_s": time_s} for time_s in times_s)


def _latencies(sample: RequestSample) -> dict[str, Any]:
    times_s, tokens = sample.chunk_times_s, sample.output_tokens
    whole = not sample.problem
    return {
        "output_tokens": tokens,
        "ttft_s": times_s[0] - sample.scheduled_s if times_s else None,
        "e2e_s": sample.end_s - sample.scheduled_s if whole else None,
    }


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


def _fields(sample: Sample) -> dict[str, Any]:
    """Return a sample's fields, and its phases as the metrics call them: forward_time_s."""
    fields = sample.model_dump()
    phases = fields.pop("phases_s", None) or {}
    return fields | {f"{phase}_time_s": seconds for phase, seconds in phases.items()}


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
    named = {name.removesuffix("_name"): value for name, value in _flat(config).items()}
    known = {*_named(row), "hardware_sources"}
    return {name: value for name, value in named.items() if name not in known}


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested sections as one level of names; lists and mappings without fixed keys become JSON."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and not before:
            found |= _flat(value, f"{name}_")
        else:
            found[f"{before}{name}"] = json.dumps(value) if isinstance(value, dict | list) else value
    return found
