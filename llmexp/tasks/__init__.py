"""Tasks are what is done and measured; each is loaded when its name is asked for.

Other packages add theirs by entry points.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmexp import plugins
from llmexp.errors import unknown

if TYPE_CHECKING:
    from llmexp.tasks.base import Task

TASKS = {
    "pretrain": "llmexp.tasks.training.task:PRETRAIN",
    "finetune": "llmexp.tasks.training.task:FINETUNE",
    "micro": "llmexp.tasks.micro.task:MICRO",
    "serve": "llmexp.tasks.serving.task:SERVE",
}


def task_names() -> list[str]:
    """Return the names that `task=` accepts."""
    return [*TASKS, *plugins.points(plugins.TASKS, frozenset(TASKS))]


def get_task(name: str) -> Task[Any, Any]:
    """Return the task of this name, or raise ConfigError that lists the known names."""
    if name in TASKS:
        return _own(TASKS[name])
    if name not in task_names():
        raise unknown("task", name, task_names())
    from llmexp.tasks.base import Task

    found: Task[Any, Any] = plugins.load(plugins.points(plugins.TASKS, frozenset(TASKS))[name], Task)
    return found


@cache
def _own(place: str) -> Task[Any, Any]:
    module, _, attribute = place.partition(":")
    own: Task[Any, Any] = getattr(import_module(module), attribute)
    return own
