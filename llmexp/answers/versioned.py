"""The base of every answer that is printed as JSON: it names its schema and the schema's version."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from llmexp.record.redact import redact, redact_all
from llmexp.record.result import Metric


class Part(BaseModel):
    """A part of an answer. Readers ignore keys that they do not know, as those of a later llmexp."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        protected_namespaces=(),
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


class SchemaName(Part):
    """Which answer this is; within a version keys are added, and none is removed or changes its meaning.

    Each answer has a type of its own, whose name and version are constants.
    """

    name: str
    version: int


class Answer(Part):
    """An answer; its `schema` in JSON says which, and in which version."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)


class Figure(Part):
    """A quantity over repeats, in the unit of its name; null stands for what is not a number."""

    mean: float | None
    std_between_repeats: float | None = Field(None, description="sample standard deviation (n - 1) between repeats")
    std_within_run: float | None = Field(None, description="the same over the measured steps of all repeats")
    n: int = Field(description="repeats that have it")


class Meaning(Part):
    """What a metric is."""

    unit: str
    better: str = Field(description="higher or lower; empty where neither is better")
    help: str


def figure(metric: Metric | None) -> Figure | None:
    """Return a metric as part of an answer; None for one that the run lacks."""
    if metric is None:
        return None
    between, within = (
        value if _is_number(value) else None for value in (metric.std_between_repeats, metric.std_within_run)
    )
    mean = metric.mean if _is_number(metric.mean) else None
    return Figure(mean=mean, std_between_repeats=between, std_within_run=within, n=metric.n)


def figures(metrics: Mapping[str, Metric | None]) -> dict[str, Figure | None]:
    """Return metrics by name as part of an answer."""
    return {name: figure(metric) for name, metric in metrics.items()}


def line(answer: Answer) -> str:
    """Return an answer as one line of JSON without the secrets that runs may have recorded."""
    text = answer.model_dump_json()
    if redact(text) == text:  # redacting each text takes long and is seldom needed
        return text
    return json.dumps(redact_all(json.loads(text)), ensure_ascii=False)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
