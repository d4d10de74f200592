"""Parts that the records of many runs have in common, such as the model or the installed packages.

Runs of a sweep differ in a few sections of their configuration and in what they measured. The others are recognized by
their text, and are neither parsed nor validated nor held twice.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec
from pydantic import BaseModel
from pydantic_core import from_json

# At one place, such as config.model. Runs that share much, as those of a sweep, are read one after the other.
MOST_KEPT = 256
R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")
_Place = tuple[Any, ...]
_New = list[tuple[_Place, bytes]]
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Named(msgspec.Struct):
    name: str


class _OfTask(msgspec.Struct):
    task: _Named


class _Configured(msgspec.Struct):
    config: _OfTask


_CONFIGURED = msgspec.json.Decoder(_Configured)


class SharedParts:
    """The parts of the records read so far.

    A part that is equal to an earlier one is that earlier object, so nobody may change records that were read so.
    """

    def __init__(self) -> None:
        self._known: dict[_Place, dict[bytes, Any]] = {}

    def read(self, kind: type[R], text: str) -> R | None:
        """Return what kind.model_validate_json(text, strict=False) returns; None where it raises, and then says why.

        Objects in the record are its parts, and in its `config` those in that.
        """
        new: _New = []
        try:
            record = kind.model_validate(self._filled((kind,), text.encode(), new), strict=False)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return None
        for place, part in new:
            self._keep(place, part, _at(record, place))
        return record

    def shared(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return these JSON values with the earlier object in place of each object that is equal to one."""
        return {name: self.one(name, value) if isinstance(value, dict) else value for name, value in values.items()}

    def one(self, name: str, value: T) -> T:
        """Return the earlier JSON object of that name that is equal to this one, or else this one."""
        text = marshal.dumps(cast(Any, value), 2)  # the versions after it depend on which values are one object
        known: T | None = self._known.get((name,), {}).get(text)
        return self._keep((name,), text, value) if known is None else known

    @staticmethod
    def task_of(text: str) -> str:
        """Return the name of the task of a plan's text, "" where it has none."""
        try:
            return _CONFIGURED.decode(text).config.task.name
        except (msgspec.MsgspecError, RecursionError):
            return ""

    def _filled(self, place: _Place, text: bytes, new: _New) -> dict[str, Any]:
        """Parse an object with the known parts in place of their JSON; `new` gets the others."""
        filled, plain = {}, {}
        for name, raw in _MEMBERS.decode(text).items():
            member = bytes(raw)
            if not member.startswith(b"{"):
                plain[name] = member
                continue
            here = (*place, name)
            part = self._known.get(here, {}).get(member)
            if part is not None:
                filled[name] = part
            elif name == "config":
                filled[name] = self._filled(here, member, new)
            else:
                plain[name] = member
                new.append((here, member))
        return filled | _parsed(plain)

    def _keep(self, place: _Place, text: bytes, part: T) -> T:
        known = self._known.setdefault(place, {})
        if len(known) == MOST_KEPT:
            known.clear()
        known[text] = part
        return part


def _at(record: BaseModel, place: _Place) -> Any:
    part: Any = record
    for name in place[1:]:
        part = getattr(part, name)
    return part


def _parsed(members: Mapping[str, bytes]) -> dict[str, Any]:
    """Parse the members of an object; one call for all takes half of the time."""
    return dict(zip(members, from_json(b"[%s]" % b",".join(members.values())), strict=True))
