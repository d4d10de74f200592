"""The base of every answer that is printed as JSON: it names its schema and the schema's version."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from llmexp.record.result import Metric


class Part(BaseModel):
    """A part of an answer. Readers ignore keys that they do not know, as those of a later llmexp."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=(), defer_build=True)


class SchemaName(Part):
    """Which answer this is; within a version keys are added, and none is removed or changes its meaning."""

    name: str
    version: int


class Answer(Part):
    """An answer; `schema` in JSON says which, and in which version."""

    schema_name: SchemaName = Field(alias="schema")

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)


class Figure(Part):
    """A quantity over repeats, in the unit of its name; null stands for what is not known or not a number."""

    mean: float | None
    std_between_repeats: float | None = Field(None, description="sample standard deviation (n - 1) between repeats")
    std_within_run: float | None = Field(None, description="the same over the measured steps of all repeats")
    n: int = Field(description="repeats that have it")


def figure(metric: Metric | None) -> Figure | None:
    """Return a metric as part of an answer; None for one that the run lacks."""
    return Figure.model_validate(metric.model_dump(mode="json")) if metric else None
