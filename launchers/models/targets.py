"""Loads classes and functions that a plan names by a dotted path, in the ranks and never in the driver."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmexp.errors import ConfigError


def load(key: str, path: str) -> Callable[..., Any]:
    """Import what `key` of the plan names; raise ConfigError if it does not exist or cannot be called."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that nothing in this folder replaces a library
    try:
        found = pkgutil.resolve_name(path)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}={path}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}={path} is a {type(found).__name__}, which cannot be called")
    called: Callable[..., Any] = found
    return called
