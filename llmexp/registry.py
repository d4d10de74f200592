"""The tasks, engines, families of microbenchmarks, published references and trackers by name.

Other packages add theirs. Each is loaded when it is asked for. Rooms that serve all of them know them by this registry
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from llmexp import plugins
from llmexp.errors import ConfigError, hint, unknown

if TYPE_CHECKING:
    from llmexp.micro.families.base import Family
    from llmexp.record.plan import RunPlan
    from llmexp.record.trackers.run_tracker import RunTracker
    from llmexp.report.references.reference import Reference
    from llmexp.tasks.base import Task
    from llmexp.tasks.engine import Engine

TASKS = {
    "pretrain": "llmexp.training.task:PRETRAIN",
    "finetune": "llmexp.training.task:FINETUNE",
    "micro": "llmexp.micro.task:MICRO",
    "serve": "llmexp.serving.task:SERVE",
    "compress": "llmexp.compress.task:COMPRESS",
}
# Of an engine whose folder has another name.
_FOLDERS = {"torch": "torch_native"}
_SERVERS = ("transformers", "vllm", "sglang", "lightllm", "tgi", "llama_cpp", "command")
ENGINES = {
    name: f"llmexp.launchers.{_FOLDERS.get(name, name)}.engine:ENGINE"
    for name in ("deepspeed", "megatron", "script", "torch", "torchft", "micro", "compress")
} | {name: f"llmexp.launchers.serving.engines.{name}:ENGINE" for name in _SERVERS}
# In the order in which a run measures their points.
FAMILIES = {
    name: f"llmexp.micro.families.{name}:{name.upper()}"
    for name in ("gemm", "memory", "copies", "collectives", "attention", "operators", "optimizer", "disk")
}
# The other keys of `micro.` are taken too.
_NO_FAMILY = frozenset((*FAMILIES, "name", "ranks", "dtypes"))
REFERENCES = {"paper": "llmexp.paper.reference:PAPER", "review": "llmexp.review.reference:REVIEW"}
# Those beside MLflow.
TRACKERS = {name: f"llmexp.record.trackers.{name}:{name.upper()}" for name in ("tensorboard", "wandb")}
# These have a meaning of their own in tracking.name.
_NO_TRACKER = frozenset((*TRACKERS, "mlflow", "none"))
# What those of other packages have to be.
_FAMILY = "llmexp.micro.families.base:Family"
_TASK, _ENGINE = "llmexp.tasks.base:Task", "llmexp.tasks.engine:Engine"
_REFERENCE = "llmexp.report.references.reference:Reference"
_TRACKER = "llmexp.record.trackers.run_tracker:RunTracker"


def task_names() -> list[str]:
    """Return the names that `task=` accepts."""
    return [*TASKS, *_outside_tasks()]


def get_task(name: str) -> Task[Any, Any]:
    """Return the task of this name, or raise ConfigError that lists the known names."""
    if name not in TASKS and name not in task_names():
        raise unknown("task", name, task_names())
    task: Task[Any, Any] = _named(TASKS[name]) if name in TASKS else plugins.load(_outside_tasks()[name], _named(_TASK))
    return task


def engine_names(task: str) -> list[str]:
    """Return the names that `engine=` accepts with this task; engines of broken packages are left out."""
    return [name for name, engine in _loadable_engines() if task in engine.tasks]


def get_engine(task: str, name: str) -> Engine[Any]:
    """Return the engine of this name for a task; raise ConfigError with the names that there are."""
    engine = _load_engine(name) if name in (*ENGINES, *_outside_engines()) else None
    if engine is not None and task in engine.tasks:
        return engine
    names = engine_names(task)
    choices = f"choices are {', '.join(names)}, with task={task}"
    if engine is not None:
        raise ConfigError(f"engine={name} belongs to task={' or task='.join(engine.tasks)}: add that; {choices}")
    raise ConfigError(f"unknown engine '{name}': {hint('engine', name, names)}{choices}")


def family_names() -> list[str]:
    """Return the names of the sections of `micro.`, one for each family of microbenchmarks."""
    return [*FAMILIES, *_outside_families()]


def get_family(name: str) -> Family[Any]:
    """Return the family of this name, which `family_names` has; raise ConfigError where its package is broken."""
    if name in FAMILIES:
        own: Family[Any] = _named(FAMILIES[name])
        return own
    point = _outside_families()[name]
    found: Family[Any] = plugins.load(point, _named(_FAMILY))
    _check_name(point, found.name)
    return found


def families() -> list[Family[Any]]:
    """Return all families, in the order in which a run measures their points."""
    return [get_family(name) for name in family_names()]


def references() -> list[Reference]:
    """Return the published references, this package's first; raise ConfigError for one that cannot be loaded."""
    # llmexp report findings shows something else.
    others = plugins.points(plugins.REFERENCES, frozenset({*REFERENCES, "findings"})).values()
    return [*map(_named, REFERENCES.values()), *(plugins.load(point, _named(_REFERENCE)) for point in others)]


def tracker_names() -> list[str]:
    """Return the names that `tracking.also` accepts."""
    return [*TRACKERS, *_outside_trackers()]


def get_tracker(name: str) -> RunTracker:
    """Return the tracker of this name; raise ConfigError with the names that there are."""
    if name in TRACKERS:
        own: RunTracker = _named(TRACKERS[name])
        return own
    outside = _outside_trackers()
    if name not in outside:
        raise unknown("tracker", name, tracker_names())
    found: RunTracker = plugins.load(outside[name], _named(_TRACKER))
    _check_name(outside[name], found.name)
    return found


def published_rate(plan: RunPlan) -> tuple[float, str] | None:
    """Return the rate that was published for this very run, and the name of the reference; None where none was."""
    rates = ((reference.published_rate(plan), reference.name) for reference in references())
    return next(((rate, name) for rate, name in rates if rate), None)


def published_speed(plan: RunPlan) -> tuple[float, str] | None:
    """Return the rate of one device that was published nearest to the run, and whose it is; None without any."""
    return next(filter(None, (reference.published_speed(plan) for reference in references())), None)


def _load_engine(name: str) -> Engine[Any]:
    engine: Engine[Any] = (
        _named(ENGINES[name]) if name in ENGINES else plugins.load(_outside_engines()[name], _named(_ENGINE))
    )
    return engine


def _loadable_engines() -> Iterator[tuple[str, Engine[Any]]]:
    for name in (*ENGINES, *_outside_engines()):
        try:
            yield name, _load_engine(name)
        except ConfigError:
            continue


def _outside_tasks() -> dict[str, EntryPoint]:
    return plugins.points(plugins.TASKS, frozenset(TASKS))


def _outside_engines() -> dict[str, EntryPoint]:
    return plugins.points(plugins.ENGINES, frozenset(ENGINES))


def _outside_families() -> dict[str, EntryPoint]:
    return plugins.points(plugins.FAMILIES, _NO_FAMILY)


def _outside_trackers() -> dict[str, EntryPoint]:
    return plugins.points(plugins.TRACKERS, _NO_TRACKER)


def _check_name(point: EntryPoint, name: str) -> None:
    if name != point.name:
        raise ConfigError(f"{plugins.origin(point)} is named {name}; the two names have to be one")


@cache
def _named(place: str) -> Any:
    """Return the object that `module:attribute` names."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
