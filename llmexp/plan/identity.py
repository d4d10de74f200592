"""The id of a run: a digest of all that determines what it measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from llmexp.record.naming import NOT_MEASURED
from llmexp.schema import RunConfig

# What precision=auto chose is in the id, why it did is not.
NOT_IN_ID: dict[str, Any] = dict.fromkeys(NOT_MEASURED, True) | {"precision": {"chosen_because"}}


def identity(config: RunConfig, engine_config: Mapping[str, Any], more: Mapping[str, str] | None = None) -> str:
    """Hash what determines the measurement to 12 hexadecimal digits; tracking and launching left out.

    `more`: what else does, by name: digests of what lies at the configuration's paths, for other records at the same place are another run, or
    the one form of what can be typed in several. Defaults are left out, so that a key that a later version adds leaves the ids of earlier runs
    as they are; a changed default is another stack.
    """
    resolved = (
        config.model_dump(mode="json", exclude=NOT_IN_ID, exclude_defaults=True)
        | {"engine_config": engine_config}
        | dict(more or {})
    )
    if (
        resolved["engine"]["launcher"] != "fork"
    ):  # its repeats share a process's memory layout; the others do the same thing
        resolved["engine"].pop("launcher")
    return hashlib.sha256(json.dumps(resolved, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
