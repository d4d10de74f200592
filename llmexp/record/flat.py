"""Nested values as flat text, by which two configurations or environments are compared key by key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def flat(value: Any, path: str = "") -> dict[str, str]:
    """Return nested mappings as one, with keys joined by dots and values as text."""
    if isinstance(value, Mapping) and value:
        return {
            key: leaf
            for name, inner in value.items()
            for key, leaf in flat(inner, f"{path}.{name}" if path else str(name)).items()
        }
    return {path: value if isinstance(value, str) else json.dumps(value)}
