"""The id of a run is a digest of everything that determines what the run measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from llmexp.record.naming import NOT_MEASURED
from llmexp.schema import RunConfig

# The id depends on what precision=auto chose, not on why; limits and the peaks of fp8 and fp16, by which only MFU goes,
# are put beside what is measured; and the versions in a server's own environment belong to the stack.
NOT_IN_ID: dict[str, Any] = dict.fromkeys(NOT_MEASURED, True) | {
    "precision": {"chosen_because"},
    "hardware": {"calibration": True, "peak_flops_per_s": {"fp8", "fp16"}},
    "engine": {"python"},
}


def identity(config: RunConfig, engine_config: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> str:
    """Hash what determines the measurement to 12 hexadecimal digits; tracking and launching are left out.

    `more` holds further values by name: digests of the contents at the configuration's paths, because other records at
    the same path are another run, and the one form of a value that can be typed in several forms.
    Defaults are left out, so that ids of earlier runs stay when a later version adds a key; a changed default is
    another stack.
    """
    resolved = (
        config.model_dump(mode="json", exclude=NOT_IN_ID, exclude_defaults=True)
        | {"engine_config": engine_config}
        | dict(more or {})
    )
    # Repeats of fork share one process's memory layout; all other launchers do the same thing.
    if resolved["engine"]["launcher"] != "fork":
        resolved["engine"].pop("launcher")
    return hashlib.sha256(json.dumps(resolved, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
