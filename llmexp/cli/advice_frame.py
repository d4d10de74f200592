"""Ranked options as a table of pandas, whose columns are named as those of `llmexp.load`."""

from __future__ import annotations

from typing import Any

from llmexp.answers.advised import AdvisedOption, AdvisedTraining, OptionsAdvised
from llmexp.answers.planned import PlannedMemory
from llmexp.frame.columns import columns, of_fields
from llmexp.frame.made import frame_of
from llmexp.record.flat import one_level

_SHARE = "share of a sample's predicted time"
_FIRST = ("rank", "fits", "undecided")


def advice_frame(answer: OptionsAdvised) -> Any:
    """Return a pandas.DataFrame with a row an option; quantities that are not known are empty."""
    meanings = columns() | dict(of_fields(AdvisedOption.model_fields))
    meanings |= dict(of_fields(PlannedMemory.model_fields, "memory_"))
    meanings |= dict(of_fields(AdvisedTraining.model_fields, "training_"))
    parts = {part for option in answer.options for part in option.time_shares}
    meanings |= {_name(f"time_shares_{part}"): {"unit": "", "description": f"{_SHARE}: {part}"} for part in parts}
    nearest = [one.model_dump(mode="json") for one in answer.nearest]
    told = {"goal": answer.goal, "training_tokens": answer.training_tokens, "choice": answer.choice, "nearest": nearest}
    return frame_of([_row(option) for option in answer.options], meanings, **told)


def _row(option: AdvisedOption) -> dict[str, Any]:
    found = option.model_dump(exclude_none=True, exclude={"settings": True, "command": True, "memory": {"parts_bytes"}})
    flat = one_level({name: found.pop(name) for name in _FIRST} | found | {"changes": ", ".join(option.changes)})
    settings = {_name(key): value for key, value in option.settings.items()}
    return {_name(name): value for name, value in flat.items()} | settings | {"command": option.command}


def _name(text: str) -> str:
    return text.replace(" ", "_").replace(".", "_")
