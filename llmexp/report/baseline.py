"""What one run contributes to a comparison of sets, and the small file that keeps such a set: the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator

from llmexp.analysis.sameness import DoneTraining
from llmexp.errors import ConfigError
from llmexp.record.flat import flat
from llmexp.record.reading import OddFileError, parsed, read_text
from llmexp.record.result import Metric, RunStatus, to_json
from llmexp.record.samples import Record
from llmexp.record.writing import write_atomically
from llmexp.registry import get_task
from llmexp.report.compare import environment_of, settings_of
from llmexp.report.row import Row
from llmexp.version import __version__

KIND = "llmexp baseline"
SCHEMA = 2
# Those of schema 1 kept nothing by which two trainings are compared.
_READABLE = (1, SCHEMA)
# How often a run is repeated does not change what it measures.
_HOW_OFTEN = ("measure.repeats",)
# These tell one copy of a machine from another, and not what computes there; a baseline is meant to be shown to others.
_PLACES = ("interpreter", "variables", "git.working_directory")


class Measured(Record):
    """A run as one row of a set: what identifies it, what it did, where it ran and what it measured."""

    settings: dict[str, str] = Field(description="the configuration, one value a key")
    work: dict[str, str] = Field(description="what a sample of it does; other work is not compared")
    environment: dict[str, str] = Field(description="versions, commits and hardware")
    state: str = Field(description="the run's ending, or 'planned', 'running' or 'waiting'")
    reason: str = ""
    unstable: str = Field("", description="why the measurement is unstable as a whole; empty where it is not")
    rate: str = Field(description="the metric that says how fast the task is")
    metrics: dict[str, Metric] = Field(description="means over repeats, their deviation and number")
    trained: SerializeAsAny[DoneTraining] | None = Field(
        None, description="what a training did, to be compared with others; None for other tasks, and in schema 1"
    )
    ended_at: str = ""

    @field_validator("trained", mode="before")
    @classmethod
    def _of_its_task(cls, value: Any, known: ValidationInfo) -> Any:
        if not isinstance(value, Mapping):
            return value
        kind = get_task(known.data.get("settings", {}).get("task.name", "")).trained_type
        if kind is None:
            raise ValueError("its task trains nothing")
        return kind.model_validate(value)

    @property
    def is_measured(self) -> bool:
        """Tell whether the run was measured to its end."""
        return self.state == RunStatus.SUCCESS


class Baseline(Record):
    """The content of a baseline's file."""

    kind: str = KIND
    schema_version: int = Field(SCHEMA, alias="schema")
    written_by: str = __version__
    rows: list[Measured] = Field(min_length=1)

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


def measured(row: Row) -> Measured:
    """Return what a run contributes to a comparison of sets."""
    result, judged = row.result, row.stability
    ran = environment_of(row) if result else {}
    environment = {key: value for key, value in ran.items() if key and not key.startswith(_PLACES)}
    settings = {key: value for key, value in settings_of(row.plan).items() if key not in _HOW_OFTEN}
    return Measured(
        settings=settings,
        work=flat(row.done),
        environment=environment,
        state=row.state,
        reason=row.reason,
        unstable=judged.words if judged and judged.verdict == "unstable" else "",
        rate=row.plan.rate,
        metrics={name: metric for name, metric in (result.metrics if result else {}).items() if metric},
        trained=row.trained,
        ended_at=result.ended_at if result else "",
    )


def save(path: Path, rows: Sequence[Measured]) -> None:
    """Write a baseline by rename."""
    write_atomically(path, to_json(Baseline(rows=list(rows))))


def load(path: Path) -> list[Measured]:
    """Read a baseline; raises ConfigError where it is missing, damaged or another version's."""
    how = "llmexp compare <runs> --save-baseline <file> writes one"
    try:
        content = parsed(read_text(path))
    except FileNotFoundError:
        raise ConfigError(f"there is no baseline {path}: {how}") from None
    except (OSError, OddFileError, ValueError) as error:
        raise ConfigError(f"{path} is not a baseline, or is damaged: {_first_line(error)}; {how}") from None
    if not isinstance(content, Mapping) or content.get("kind") != KIND:
        raise ConfigError(f"{path} is not a baseline: its kind is not {KIND!r}; {how}")
    _check_version(path, content)
    try:
        return Baseline.model_validate(content).rows
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"the baseline {path} is damaged: {place}: {first['msg']}; {how}") from None


def _check_version(path: Path, content: Mapping[str, Any]) -> None:
    if (schema := content.get("schema")) not in _READABLE:
        by = content.get("written_by", "another version")
        raise ConfigError(
            f"the baseline {path} has the schema {schema}, and llmexp {__version__} reads {_READABLE[0]} to {SCHEMA}: "
            f"llmexp {by} wrote it; compare with that version, or write it again"
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
