"""NVML's counters of how long a GPU's clocks have been held down, and why.

Unlike samples, the counters miss nothing between two readings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmexp.machine.accelerators import nvml

HEAT, HEAT_BY_HARDWARE, POWER_BRAKE, POWER_CAP = "heat", "heat, by hardware", "power brake", "power cap"
# NVML's numbers for the integer types that can hold nanoseconds, and their names in its union. Settings have shorter
# types, so they are not mistaken for a count.
_WIDE = {2: "ulVal", 3: "ullVal", 4: "sllVal"}


@dataclass(frozen=True)
class Source:
    """The place where NVML counts the nanoseconds of one reason.

    It is one of the fields or, where NVML has none of them, a policy of nvmlDeviceGetViolationStatus.
    """

    fields: tuple[int, ...]
    policy: int | None = None


# From nvml.h. Three fields moved: drivers count in 251 to 253 or in 269 to 271. The other three hold settings, which
# do not change, so both are read.
SOURCES = {
    HEAT: Source((75, 251, 269), 1),
    HEAT_BY_HARDWARE: Source((252, 270)),
    POWER_BRAKE: Source((253, 271)),
    POWER_CAP: Source((74,), 0),
    "sync boost": Source((76,), 2),
    "board limit": Source((77,), 3),
    "low utilization": Source((78,), 4),
    "reliability": Source((79,), 5),
}
_POLICY = -1


@dataclass(frozen=True)
class ThrottleCounters:
    """The throttle counters of one GPU; a counter that NVML does not report is left out."""

    library: Any
    handle: Any
    index: int

    def read_ns(self) -> dict[str, dict[int, int]]:
        """Return each reason's nanoseconds since some moment, for every field that may count them."""
        fields = self._fields_ns()
        own = {
            reason: {field: fields[field] for field in source.fields if field in fields}
            for reason, source in SOURCES.items()
        }
        found = {reason: values or self._policy_ns(SOURCES[reason]) for reason, values in own.items()}
        return {reason: values for reason, values in found.items() if values}

    def power_cap_w(self) -> float | None:
        """Return the power that the GPU may draw now; None where NVML does not tell."""
        return self._watts(nvml.power_cap_w)

    def power_cap_default_w(self) -> float | None:
        """Return the power that the GPU may draw by default; None where NVML does not tell."""
        return self._watts(nvml.power_cap_default_w)

    def _fields_ns(self) -> dict[int, int]:
        with contextlib.suppress(self.library.NVMLError, AttributeError):
            values = self.library.nvmlDeviceGetFieldValues(
                self.handle, [field for source in SOURCES.values() for field in source.fields]
            )
            return {
                one.fieldId: int(getattr(one.value, _WIDE[one.valueType]))
                for one in values
                if one.nvmlReturn == 0 and one.valueType in _WIDE
            }
        return {}

    def _policy_ns(self, source: Source) -> dict[int, int]:
        with contextlib.suppress(self.library.NVMLError, AttributeError):
            if source.policy is not None:
                return {
                    _POLICY: int(self.library.nvmlDeviceGetViolationStatus(self.handle, source.policy).violationTime)
                }
        return {}

    def _watts(self, cap: Callable[[Any, Any], float]) -> float | None:
        with contextlib.suppress(self.library.NVMLError, AttributeError):
            return cap(self.library, self.handle)
        return None


def throttle_counters(uuid: str) -> ThrottleCounters | None:
    """Return the counters of the GPU with this UUID; None where the library, its driver or the GPU is missing."""
    found = nvml.handle_of(uuid)
    if found is None:
        return None
    library, handle = found
    try:
        return ThrottleCounters(library, handle, library.nvmlDeviceGetIndex(handle))
    except library.NVMLError:
        return None
