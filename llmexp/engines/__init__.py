"""The engines, which do a task's work: each has a file, and is known here by its name and loaded when it is asked for.

Other packages add engines by entry points.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

from llmexp import plugins
from llmexp.engines.base import Engine
from llmexp.errors import ConfigError, hint

_SERVERS = ("transformers", "vllm", "sglang", "lightllm", "tgi", "llama_cpp", "command")
ENGINES = {name: f"llmexp.engines.{name}:ENGINE" for name in ("deepspeed", "megatron", "script", "torch", "micro")} | {
    name: f"llmexp.engines.serving.{name}:ENGINE" for name in _SERVERS
}


def engine_names(task: str) -> list[str]:
    """Return the names that `engine=` accepts with this task; engines of broken packages are left out."""
    return [name for name, engine in _loadable() if task in engine.tasks]


def get_engine(task: str, name: str) -> Engine[Any]:
    """Return the engine of this name for a task; raise ConfigError with the names that there are."""
    engine = _load(name) if name in (*ENGINES, *_outside()) else None
    if engine is None or task not in engine.tasks:
        names = engine_names(task)
        raise ConfigError(
            f"unknown engine '{name}': {hint('engine', name, names)}choices are {', '.join(names)}, with task={task}"
        )
    return engine


def _load(name: str) -> Engine[Any]:
    module, _, attribute = ENGINES.get(name, "").partition(":")
    engine: Engine[Any] = (
        getattr(import_module(module), attribute) if module else plugins.load(_outside()[name], Engine)
    )
    return engine


def _loadable() -> Iterator[tuple[str, Engine[Any]]]:
    for name in (*ENGINES, *_outside()):
        try:
            yield name, _load(name)
        except ConfigError:
            continue


def _outside() -> dict[str, EntryPoint]:
    return plugins.points(plugins.ENGINES, frozenset(ENGINES))
