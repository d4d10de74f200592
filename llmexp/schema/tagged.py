"""Sections of several types: this module finds the type of a section and explains keys that only other types have."""

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
    """One of the types that a section may have; it has exactly the keys that apply to it."""

    kinds: ClassVar[tuple[str, ...]]
    """The words that a person writes to get this type, or calls it by."""

    said: ClassVar[str]
    """A sentence that says what it is, with the section's values in braces."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Advice on what to write instead of a key of another type, by key; {value} stands for what was typed."""

    choose: ClassVar[str] = "add {that}"
    """Advice on how to get the type that has the key."""


def types_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the types of sections that a field may hold; the result is empty for a field that holds no section."""
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    bare = (get_args(option)[0] if get_origin(option) is Annotated else option for option in options)
    return tuple(option for option in bare if isinstance(option, type) and issubclass(option, BaseModel))


@dataclass(frozen=True)
class Taken:
    """The type that a section has, with what was given to the section."""

    section: str
    types: tuple[type[BaseModel], ...]
    chosen: type[Tagged]
    given: Mapping[str, Any]

    @classmethod
    def by(cls, model: type[BaseModel], error: ErrorDetails, container: Mapping[str, Any]) -> Taken | None:
        """Find the type of the section in which pydantic found an error; return None for a section without tags.

        Pydantic puts the tag of the type behind the section's name.
        """
        section, *below = error["loc"]
        field = model.model_fields.get(str(section))
        types = types_of(field.annotation) if field else ()
        if field is None or len(types) < 2 or not below:
            return None
        by_tag = {tag: each for each in types for tag in _tags(each, field.discriminator)}
        found = by_tag[str(below[0])]
        return cls(str(section), types, found, container[str(section)]) if issubclass(found, Tagged) else None

    def explain(self, error: ErrorDetails) -> str | None:
        """Say in one line what pydantic has found; return None for a key that no type of the section has."""
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
        """Say which types have a key that this one does not have."""
        *others, last = [
            kind for each in self.types if issubclass(each, Tagged) and key in each.model_fields for kind in each.kinds
        ] or [""]
        if not last:
            return None
        that = "one of those" if others else last
        advice = self.chosen.instead.get(key, self.chosen.choose).format(that=that, value=spelled(value))
        kinds = f"{', '.join(others)} or {last}" if others else last
        return f"{self.section}.{key}={spelled(value)} belongs to {kinds}, and {self._said}: {advice}, or leave it out"

    def _missing(self, key: str) -> str:
        field = self.chosen.model_fields[key]
        return (
            f"{self.section}.{key} is missing, and {self._said}: "
            f"set {self.section}.{key}=<{field.description or 'value'}>"
        )

    @property
    def _said(self) -> str:
        return self.chosen.said.format_map(defaultdict(lambda: "…", self.given))


def _tags(kind: type[BaseModel], discriminator: Any) -> tuple[str, ...]:
    """Return a type's tags: the values of the key that tells the types apart, or its own name where several keys do."""
    return get_args(kind.model_fields[discriminator].annotation) if isinstance(discriminator, str) else (kind.__name__,)
