"""Checks of a composed configuration, and of typed keys, against the schema.

An error is one line with the nearest valid key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from llmexp.errors import ConfigError, nearest, unknown
from llmexp.record.redact import is_secret_name, secret_in
from llmexp.registry import get_engine, get_task, task_names
from llmexp.schema import RunConfig
from llmexp.schema.kinds import wrong_value
from llmexp.schema.tagged import Taken, types_of
from llmexp.terms import meant_by


def validate(container: Mapping[str, Any]) -> RunConfig:
    """Check a composed configuration against its task's type.

    Raises ConfigError with one line: field, value, reason, choices.
    """
    kind = _kind_of(container)
    try:
        config = kind.model_validate(dict(container))
    except ValidationError as error:
        raise _explain(kind, error.errors()[0], container) from None
    for key, value in _texts(container):
        refuse_secret(key, value)
    return config


def _texts(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield all text values, also those in lists, by their dotted keys."""
    for name, value in section.items():
        key = f"{prefix}{name}"
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, Mapping):
                yield from _texts(each, f"{key}.")
            elif isinstance(each, str):
                yield key, each


def refuse_secret(key: str, value: str) -> None:
    """Raise ConfigError for a secret value that everyone could read in the run's records.

    tracking.uri is left to its own check, which knows a better place for a password.
    """
    section, _, name = key.rpartition(".")
    if key == "tracking.uri":
        return
    if section.endswith(".environment") and is_secret_name(name) and value:
        raise ConfigError(
            f"{key} would be recorded with its value: leave it out and export {name} in the shell; ranks inherit it"
        )
    if found := secret_in(value) or secret_in(f"{name}={value}"):
        raise ConfigError(
            f"{key} holds {found}, which would be recorded: leave it out, and use a shell variable or the tool's own "
            f"login instead"
        )


def keys(kind: type[BaseModel] | None = None) -> list[str]:
    """Return all dotted keys of a configuration, or of every task's for None; sections precede their members."""
    kinds = [kind] if kind else [get_task(name).config_type for name in task_names()]
    return list(dict.fromkeys(key for each in kinds for key in _keys(each)))


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in typed_fields(model):
        yield prefix + name
        for section in types_of(info.annotation):
            yield from _keys(section, f"{prefix}{name}.")


def typed_fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a section that a person may set: all but what llmexp fills in itself."""
    for name, info in model.model_fields.items():
        told = info.json_schema_extra
        if not (isinstance(told, dict) and told.get("filled_in")):
            yield name, info


def takes_several(path: str) -> bool:
    """Tell whether values between commas are one run's, for this dotted key, and not a sweep's."""
    return path in _of_one_run()


@cache
def _of_one_run() -> frozenset[str]:
    kinds = [get_task(name).config_type for name in task_names()]
    return frozenset(key for kind in kinds for key in _lists(kind))


def _lists(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        told = info.json_schema_extra
        if isinstance(told, dict) and told.get("commas") == "list":
            yield prefix + name
        for section in types_of(info.annotation):
            yield from _lists(section, f"{prefix}{name}.")


def check_key(path: str) -> None:
    """Raise ConfigError where no task has this dotted key.

    Below a free mapping such as engine.options any key is allowed.
    """
    unknown_parts = [_first_unknown(get_task(name).config_type, path) for name in task_names()]
    if None not in unknown_parts:
        raise unknown_key(max(map(str, unknown_parts), key=len))


def _first_unknown(kind: type[BaseModel], path: str) -> str | None:
    """Return the path down to the first part that the configuration lacks; None where it has all parts."""
    sections: tuple[type[BaseModel], ...] = (kind,)
    parts = path.split(".")
    for depth, name in enumerate(parts, start=1):
        fields = [info for section in sections for each, info in typed_fields(section) if each == name]
        if not fields:
            return ".".join(parts[:depth])
        sections = tuple(each for field in fields for each in types_of(field.annotation))
        if not sections:
            return None
    return None


def of_other_tasks(path: str) -> ConfigError | None:
    """Build the error for a dotted key that only other tasks have; None where no task has it."""
    others = [task for task in task_names() if _first_unknown(get_task(task).config_type, path) is None]
    if not others:
        return None
    return ConfigError(f"{path} belongs to task={' or task='.join(others)}: add that, or leave {path} out")


def unknown_key(path: str, kind: type[BaseModel] | None = None) -> ConfigError:
    """Build the error for a dotted key that the configuration lacks, or every task's for None.

    It suggests what was meant, by the same name elsewhere or the nearest one, and lists all keys beside it.
    """
    if kind and (of_others := of_other_tasks(path)):
        return of_others
    section, _, name = path.rpartition(".")
    every = keys(kind)
    beside = {key.rpartition(".")[2]: key for key in every if key.rpartition(".")[0] == section}
    elsewhere = [key for key in every if key.rpartition(".")[2] == name]
    guess = next(iter(elsewhere), None) or beside.get(nearest(name, beside) or "")
    whole = meant_by("key", path) if section else None
    meant = whole or (meant_by("key", name) if len(elsewhere) != 1 else None)
    said = f"write {meant}; " if meant else f"did you mean {guess}? " if guess else ""
    return ConfigError(
        f"unknown key '{path}': {said}{f'keys of {section}' if section else 'keys'} are {', '.join(beside)}"
    )


def _kind_of(container: Mapping[str, Any]) -> type[RunConfig]:
    """Return the type of the configuration by its task; raises ConfigError for an unknown task."""
    task = container.get("task")
    name = task.get("name") if isinstance(task, Mapping) else None
    if not isinstance(name, str):
        raise unknown("task", str(name), task_names())
    return get_task(name).config_type


def _explain(kind: type[RunConfig], error: ErrorDetails, container: Mapping[str, Any]) -> ConfigError:
    taken = Taken.by(kind, error, container)
    said = taken.explain(error) if taken else None
    if said is None and error["type"] == "extra_forbidden":
        section, *below = map(str, error["loc"])
        if section == "engine":  # keys of an engine of another task are unknown here, as the engine is
            get_engine(str(container["task"]["name"]), str(container["engine"]["name"]))
        return unknown_key(".".join([section, *below[1 if taken else 0 :]]), kind)
    return ConfigError(said or wrong_value(kind, error))
