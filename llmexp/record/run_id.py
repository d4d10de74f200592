"""The id of a run is a digest of everything that determines what the run measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from llmexp.record.naming import NOT_MEASURED
from llmexp.schema import HfModel, RunConfig

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
    if model := config.starts_from:
        resolved = _by_its_run(model, resolved)
    # Repeats of fork share one process's memory layout; all other launchers do the same thing.
    if resolved["engine"]["launcher"] != "fork":
        resolved["engine"].pop("launcher")
    return hashlib.sha256(json.dumps(resolved, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]


def _by_its_run(model: HfModel, resolved: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the id of the run that makes the model in the place of its folder and its name.

    The id of that run determines everything else that the plan knows of the model.
    """
    assert model.made
    by_run = {model.path: f"@{model.made.run}"}
    without = {key: value for key, value in resolved["model"].items() if key not in ("name", "made")}
    found: dict[str, Any] = _replaced(resolved | {"model": without}, by_run)
    return found


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a value of JSON with some texts replaced by others, at any depth."""
    if isinstance(value, Mapping):
        return {key: _replaced(each, texts) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(each, texts) for each in value]
    return texts.get(value, value) if isinstance(value, str) else value
