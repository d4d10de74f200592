"""Engines: who runs the training step. One file an engine; its module-level ENGINE is found by the file's name, other packages' by entry points."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import EntryPoint

from llmexp import outside
from llmexp.engines.base import Engine
from llmexp.errors import unknown


def engine_names() -> list[str]:
    """Names that `engine=` accepts."""
    return [*_own(), *_outside()]


def get_engine(name: str) -> Engine:
    """The engine of that name; raises ConfigError with the names there are."""
    if name not in engine_names():
        raise unknown("engine", name, engine_names())
    point = _outside().get(name)
    engine: Engine = outside.load(point, Engine) if point else importlib.import_module(f"llmexp.engines.{name}").ENGINE
    return engine


def _own() -> list[str]:
    """Modules here that have an ENGINE; none of them imports what its ranks run."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in names if hasattr(importlib.import_module(f"{__name__}.{name}"), "ENGINE")]


def _outside() -> dict[str, EntryPoint]:
    return outside.points(outside.ENGINES, frozenset(_own()))
