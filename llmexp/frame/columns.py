"""What each column means, from the program's own tables: metrics of the tasks, and fields of the samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from llmexp.errors import LlmexpError
from llmexp.registry import get_task, task_names

if TYPE_CHECKING:
    from llmexp.tasks.base import Task

Meaning = dict[str, str]

_OWN = {
    "id": ("", "digest of what the run measures, without paths"),
    "path": ("", "the run's folder; for a bundle, where it is unpacked while this process runs"),
    "sweep": ("", "the sweep's name"),
    "task": ("", "what was done: pretrain, finetune, serve, micro or another package's"),
    "model": ("", "the model's name"),
    "method": ("", "the method in its canonical order"),
    "engine": ("", "what did it"),
    "hardware": ("", "the hardware's name in the configuration"),
    "world_size": ("devices", "devices computed on; on a CPU a rank counts as one"),
    "processes": ("ranks", "ranks on all nodes together"),
    "status": ("", "how the run ended, or planned or running"),
    "reason": ("", "why it ended so; empty for a success without a remark"),
    "evidence": ("", "measured, emulated, simulated or predicted; only measured figures are measurements"),
    "stability": ("", "stable, unstable or unknown: how far its rate can be relied on"),
    "repeats": ("", "processes that measured it"),
    "repeat": ("", "the repeat's number, from 0"),
    "rank": ("", "the rank's number, from 0"),
    "point": ("", "the point's number, from 0"),
    "began_at": ("", "ISO 8601, UTC, by the driver's clock; empty in results of earlier versions"),
    "started_at": ("", "ISO 8601, UTC"),
    "ended_at": ("", "ISO 8601, UTC"),
    "stack": ("", "digest of the code, libraries and device that measured it"),
    "host": ("", "the machine's name"),
    "command": ("", "the shell line that repeats the run"),
    "problem": ("", "why there is no figure, or no complete answer"),
}
_DEVIATIONS = {
    "std_between_repeats": "sample standard deviation (n - 1) of its repeats; empty for one",
    "std_within_run": "sample standard deviation (n - 1) of its measured steps within repeats",
}


def columns() -> dict[str, Meaning]:
    """Return each column's unit and description by its name; settings are described where the schema describes them."""
    found: dict[str, Meaning] = {}
    tasks = list(working_tasks())
    for task in tasks:
        found |= dict(of_fields(task.sample_type.model_fields)) | dict(_of_settings(task.config_type.model_fields))
    for task in tasks:
        try:
            specs = task.metrics.values()
        except LlmexpError:
            continue
        for spec in specs:
            found[spec.name] = {"unit": spec.unit, "description": spec.help}
            for suffix, meaning in _DEVIATIONS.items():
                found[f"{spec.name}_{suffix}"] = {"unit": spec.unit, "description": f"{spec.name}: {meaning}"}
    own = [_OWN, *(task.level_columns for task in tasks)]
    return found | {
        name: {"unit": unit, "description": meaning} for told in own for name, (unit, meaning) in told.items()
    }


def working_tasks() -> Iterator[Task[Any, Any]]:
    """Yield all tasks; a package that is broken describes nothing, and hides no other."""
    for name in task_names():
        with suppress(LlmexpError):
            yield get_task(name)


def of_fields(fields: Any, before: str = "") -> Iterator[tuple[str, Meaning]]:
    """Yield the unit and the description of each field that has one, by its name behind `before`."""
    for name, field in fields.items():
        if field.description:
            yield f"{before}{name}", {"unit": _unit(f"{before}{name}"), "description": field.description}


def _of_settings(sections: Any) -> Iterator[tuple[str, Meaning]]:
    for section, field in sections.items():
        if inner := getattr(field.annotation, "model_fields", None):
            yield from of_fields(inner, f"{section}_")


def _unit(name: str) -> str:
    """Return the unit that a field's name ends in."""
    known = {"tokens_per_s": "tokens/s", "tokens_per_usd": "tokens/USD", "_usd": "USD", "_hours": "h"}
    known |= {"_bytes": "bytes", "_s": "s", "_us": "us", "_tokens": "tokens", "_megahertz": "MHz", "_celsius": "°C"}
    return next((unit for ending, unit in known.items() if name.endswith(ending)), "")
