"""Nested values as flat ones: as text, by which configurations are compared key by key, or as a table's columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# For these, and for whole numbers, json takes ten times as long.
_WRITTEN = {None: "null", True: "true", False: "false"}


def flat(value: Any, path: str = "") -> dict[str, str]:
    """Return nested mappings as one, with keys joined by dots and values as text."""
    found: dict[str, str] = {}
    _add(found, value, path)
    return found


def one_level(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested sections as one level of names; lists and mappings without fixed keys become JSON."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and not before:
            found |= one_level(value, f"{name}_")
        else:
            found[f"{before}{name}"] = json.dumps(value) if isinstance(value, dict | list) else value
    return found


def _add(found: dict[str, str], value: Any, path: str) -> None:
    if isinstance(value, str):
        found[path] = value
    elif value is None or value is True or value is False:
        found[path] = _WRITTEN[value]
    elif type(value) is int:
        found[path] = str(value)
    elif isinstance(value, Mapping) and value:
        for name, inner in value.items():
            _add(found, inner, f"{path}.{name}" if path else str(name))
    else:
        found[path] = json.dumps(value)
