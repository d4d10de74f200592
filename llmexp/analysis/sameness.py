"""The answer to whether two runs that were asked for the same training did the same.

What a training did, and by how much two may differ, its task knows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeGuard

from pydantic import AliasChoices, Field

from llmexp.record.samples import Record

SAME: Final = "same"
DIFFERENT: Final = "different"
UNKNOWN: Final = "unknown"
Answer = Literal["same", "different", "unknown"]


@dataclass(frozen=True)
class Sameness:
    """The answer with its reason, and the largest difference of a step's losses as a share, where both have some."""

    answer: Answer
    reason: str = ""
    losses_apart: float | None = None


class DoneTraining(Record):
    """What a run did as a training, by which it is compared with others; each task that trains has a type of its own.

    Baselines keep it.
    """

    requested: dict[str, str] = Field(
        validation_alias=AliasChoices("requested", "asked"),  # baselines of before 0.1.0 have the second
        description="the settings that decide what is learned, one value a key",
    )

    @property
    @abstractmethod
    def has_losses(self) -> bool:
        """Tell whether the losses of its steps are known."""

    @property
    @abstractmethod
    def has_data(self) -> bool:
        """Tell whether it is known what data its steps read."""

    @abstractmethod
    def against(self, other: Self) -> Sameness:
        """Judge another run that was asked for the same training."""


def is_another(found: Sameness | None) -> TypeGuard[Sameness]:
    """Tell whether runs that were asked for the same training are known to have done another."""
    return found is not None and found.answer == DIFFERENT


def asked_otherwise(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the settings in which two runs were asked for another training, each with both values."""
    keys = dict.fromkeys([*one, *other])
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


def same_training(one: DoneTraining | None, other: DoneTraining | None) -> Sameness:
    """Judge two runs that were asked for the same training."""
    if one is None or other is None:
        return Sameness(UNKNOWN, "one run recorded nothing of its training")
    return one.against(other)


def where_asked(one: DoneTraining | None, other: DoneTraining | None) -> Sameness | None:
    """Judge two runs; None where neither is a training, or where they were not asked for the same one."""
    if one is None and other is None:
        return None
    if one and other and one.requested != other.requested:
        return None
    return same_training(one, other)
