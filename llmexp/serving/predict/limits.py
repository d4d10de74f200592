"""What a server takes at a time: requests, tokens of prompts, and room for keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmexp.schema import HardwareConfig

# Servers keep a tenth of a device's memory free, and activations and graphs take some GiB of the rest.
MEMORY_FRACTION = 0.9
# Both grow with what a card computes at a time, up to what a large one takes.
_BESIDES, _BESIDES_SHARE = 6 * 2**30, 0.075
# As their command lines say where nothing is set.
_AT_ONCE = {"vllm": 256, "tgi": 128, "lightllm": 1000}
_LARGE, _AT_ONCE_LARGE = 70 * 2**30, 1024
_OTHER = 2048
# Tokens of prompts in an iteration.
PREFILL = 8192


def most_at_once(engine: str, hardware: HardwareConfig) -> int:
    """Return the requests that an engine computes together where nobody says."""
    is_large = (hardware.memory_bytes or 0) >= _LARGE and hardware.architecture != "sm_80"
    return _AT_ONCE_LARGE if engine == "vllm" and is_large else _AT_ONCE.get(engine, _OTHER)


def memory_share(options: Mapping[str, Any]) -> float:
    """Return the share of a device's memory that a server takes."""
    return float(options.get("memory_fraction") or MEMORY_FRACTION)


def besides(hardware: HardwareConfig) -> int:
    """Return the bytes of a device that neither weights nor keys and values take."""
    return min(_BESIDES, round(_BESIDES_SHARE * (hardware.memory_bytes or 0)))


def cache_room(hardware: HardwareConfig, weights_bytes: float, fraction: float = MEMORY_FRACTION) -> float:
    """Return the bytes of a device that keys and values may take; negative where the weights leave none."""
    return fraction * float(hardware.memory_bytes or 0) - weights_bytes - besides(hardware)
