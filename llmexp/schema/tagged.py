"""Sections that are one of several types: which of them a section took, and what is said of a key that only others have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from llmexp.schema.kinds import spelled, wrong_value
from llmexp.schema.section import Section


class Tagged(Section):
    """One of the types that a section may be, which has exactly the keys that count for it."""

    kinds: ClassVar[tuple[str, ...]]
    """What a person writes to have it, or calls it."""

    said: ClassVar[str]
    """What it is, with the section's values in braces."""

    instead: ClassVar[Mapping[str, str]] = {}
    """What to write instead of a key of another type, {value} being what was typed, where there is such a thing."""

    choose: ClassVar[str] = "add {that}"
    """How to come to the type that has the key."""


def types_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The types of sections that a field may hold; none of a field that holds no section."""
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    bare = (get_args(option)[0] if get_origin(option) is Annotated else option for option in options)
    return tuple(option for option in bare if isinstance(option, type) and issubclass(option, BaseModel))


@dataclass(frozen=True)
class Taken:
    """The type that a section took, with what was given to it."""

    section: str
    types: tuple[type[BaseModel], ...]
    chosen: type[Tagged]
    given: Mapping[str, Any]

    @classmethod
    def by(cls, model: type[BaseModel], error: ErrorDetails, container: Mapping[str, Any]) -> Taken | None:
        """That of the section in which pydantic found an error, by the tag that it puts behind the section's name; None of untagged sections."""
        section, *below = error["loc"]
        field = model.model_fields.get(str(section))
        types = types_of(field.annotation) if field else ()
        if field is None or len(types) < 2 or not below:
            return None
        by_tag = {tag: each for each in types for tag in _tags(each, field.discriminator)}
        found = by_tag[str(below[0])]
        return cls(str(section), types, found, container[str(section)]) if issubclass(found, Tagged) else None

    def explain(self, error: ErrorDetails) -> str | None:
        """What pydantic has found as one line; None for a key that no type of the section has."""
        below, above = error["loc"][2:], f"{self.section}."
        if error["type"] == "extra_forbidden":
            return self._foreign(str(below[0]), error["input"])
        if (
            len(below) == 1
            and (error["type"] == "missing" or error["input"] is None)
            and self.chosen.model_fields[str(below[0])].is_required()
        ):
            return self._missing(str(below[0]))
        return wrong_value(self.chosen, error | {"loc": below}, above)

    def _foreign(self, key: str, value: Any) -> str | None:
        """Name the types that have a key which this one has not."""
        *others, last = [
            kind for each in self.types if issubclass(each, Tagged) and key in each.model_fields for kind in each.kinds
        ] or [""]
        if not last:
            return None
        that = "one of those" if others else last
        advice = self.chosen.instead.get(key, self.chosen.choose).format(that=that, value=spelled(value))
        kinds = f"{', '.join(others)} or {last}" if others else last
        return f"{self.section}.{key}={spelled(value)} is of {kinds}, and {self._said}: {advice}, or leave it out"

    def _missing(self, key: str) -> str:
        field = self.chosen.model_fields[key]
        return f"{self.section}.{key} is missing, and {self._said}: set {self.section}.{key}=<{field.description or 'value'}>"

    @property
    def _said(self) -> str:
        return self.chosen.said.format_map(defaultdict(lambda: "…", self.given))


def _tags(kind: type[BaseModel], discriminator: Any) -> tuple[str, ...]:
    """Those of a type: the values of the key that tells the types apart, or its own name where several keys do."""
    return get_args(kind.model_fields[discriminator].annotation) if isinstance(discriminator, str) else (kind.__name__,)
