"""How it is known what a server holds: the patterns that its page of metrics and its log have, and what is computed."""

from __future__ import annotations

import math
import re
from typing import Literal

from pydantic import Field

from llmexp.record.samples import Record

MIB = 1 << 20


class ReportedNumber(Record):
    """A number that a server tells: that of a line is its pattern's groups multiplied, and lines are added up."""

    where: Literal["page", "log"]
    pattern: str = Field(description="a regular expression, multiline; every group is a number")
    words: str = Field(description="where it stands, for people")
    unit_bytes: int = Field(1, description="by which the number is multiplied where it is one of memory")
    lines: int | None = Field(None, description="of devices that tell their own part; with fewer nothing is known")

    def number(self, text: str) -> float | None:
        """Return the number; None where the text has none of it, or not of all devices."""
        found = [match.groups() for match in re.finditer(self.pattern, text, re.MULTILINE)]
        if not found or (self.lines is not None and len(found) != self.lines):
            return None
        return self.unit_bytes * sum(math.prod(_number(group) for group in groups) for groups in found)


class ComputedBytes(Record):
    """A number that follows from what the server was told."""

    number: int
    words: str = Field(description="from what, for people")


class ReportedMemory(Record):
    """What a server holds on all of its devices together; what is not known is left out."""

    kv_tokens_told: list[ReportedNumber] = Field(default_factory=list, description="the first that is found counts")
    kv_tokens: ComputedBytes | None = Field(None, description="where the server does not tell them")
    kv_bytes_per_token: int | None = Field(None, description="keys and values of all layers, copies of heads included")
    weights_told: list[ReportedNumber] = Field(default_factory=list, description="bytes, as kv_tokens_told")
    weights: ComputedBytes | None = Field(None, description="bytes, where the folder's tensors are not what is held")
    folder_copies: int = Field(0, description="how often the folder's tensors are held, as they are; 0: not known")

    @property
    def every_told(self) -> list[ReportedNumber]:
        """All that the server may tell."""
        return [*self.kv_tokens_told, *self.weights_told]


def _number(group: str) -> float:
    return float(group.replace(",", ""))
