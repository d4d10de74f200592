"""What was chosen for a run: the names of its groups, and the keys that are not as everybody has them."""

from __future__ import annotations

from collections.abc import Container, Iterator

from pydantic import BaseModel

from llmexp.record.flat import flat
from llmexp.record.naming import NOT_MEASURED
from llmexp.record.plan import RunPlan


def chosen(plan: RunPlan) -> dict[str, str]:
    """Return the parameters of a tracker, by key: few enough to compare runs by.

    A group, such as a model, is known by its name, and of its keys only those count that the command has. Of sections
    without a name those count that differ from their defaults.
    """
    config = plan.config
    sections = {name: getattr(config, name) for name in type(config).model_fields if name not in NOT_MEASURED}
    groups = {name: str(section.name) for name, section in sections.items() if getattr(section, "name", None)}
    typed = {word.lstrip("+~").partition("=")[0] for word in plan.overrides} - groups.keys()
    keys = typed | set(_unusual(config, (*groups, *NOT_MEASURED)))
    values = flat(config.model_dump(mode="json", include=set(sections)))
    return groups | {
        key: value for key, value in values.items() if any(f"{key}.".startswith(f"{one}.") for one in keys)
    }


def _unusual(section: BaseModel, without: Container[str] = (), before: str = "") -> Iterator[str]:
    """Yield the keys of a section, and of those below it, that have a default and another value."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if name in without:
            continue
        if isinstance(value, BaseModel):
            yield from _unusual(value, before=f"{before}{name}.")
        elif not field.is_required() and value != field.get_default(call_default_factory=True):
            yield f"{before}{name}"
