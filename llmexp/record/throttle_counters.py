"""For how long a GPU's clocks were held down between two moments, and by what: NVML's own counters, which miss nothing between samples."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

from llmexp.record import nvml
from llmexp.record.samples import GpuWindow

HEAT, HEAT_BY_HARDWARE, POWER_BRAKE, POWER_CAP = "heat", "heat, by hardware", "power brake", "power cap"
# NVML's numbers of integers that hold nanoseconds, and where they stand in its union; settings are shorter ones.
_WIDE = {2: "ulVal", 3: "ullVal", 4: "sllVal"}
# A counter that runs ahead by more counts something else, or has started again.
_LATE_S, _FAST = 1.0, 1.1


@dataclass(frozen=True)
class Source:
    """Where NVML counts the nanoseconds of one reason: in fields, or where it has none of them by a policy of nvmlDeviceGetViolationStatus."""

    fields: tuple[int, ...]
    policy: int | None = None


# By nvml.h. Three fields moved: drivers count in 251 to 253 or in 269 to 271, and have settings in the others, which stand still. So both are read.
SOURCES = {
    HEAT: Source((75, 251, 269), 1),
    HEAT_BY_HARDWARE: Source((252, 270)),
    POWER_BRAKE: Source((253, 271)),
    POWER_CAP: Source((74,), 0),
    "sync boost": Source((76,), 2),
    "board limit": Source((77,), 3),
    "low utilisation": Source((78,), 4),
    "reliability": Source((79,), 5),
}
_POLICY = -1


class ThrottleMeter:
    """Reads the counters of the GPU with this UUID around a block; `found` is None without GPU (None), NVML, driver or any such counter."""

    def __init__(self, uuid: str | None) -> None:
        self.found: GpuWindow | None = None
        self._board = _board(uuid) if uuid else None

    def __enter__(self) -> Self:
        self._begun_s = perf_counter()
        self._earlier = self._board.counters_ns() if self._board else {}
        return self

    def __exit__(self, *_: object) -> None:
        if self._board and self._earlier:
            later, seconds = self._board.counters_ns(), perf_counter() - self._begun_s
            counted = {reason: _seconds_since(self._earlier[reason], later.get(reason, {}), seconds) for reason in self._earlier}
            known = {reason: value for reason, value in counted.items() if value is not None}
            self.found = self._board.window(seconds, known) if known else None


@dataclass(frozen=True)
class _Board:
    """A GPU that NVML answers for; what it does not tell is left out."""

    nvml: Any
    handle: Any
    index: int

    def counters_ns(self) -> dict[str, dict[int, int]]:
        """Nanoseconds since some moment of each reason, by each field that may count it."""
        fields = self._fields_ns()
        own = {reason: {field: fields[field] for field in source.fields if field in fields} for reason, source in SOURCES.items()}
        found = {reason: values or self._policy_ns(SOURCES[reason]) for reason, values in own.items()}
        return {reason: values for reason, values in found.items() if values}

    def window(self, seconds: float, throttled_s: dict[str, float]) -> GpuWindow:
        """The same with the power cap as it is now."""
        cap_w, default_w = self._watts("nvmlDeviceGetEnforcedPowerLimit"), self._watts("nvmlDeviceGetPowerManagementDefaultLimit")
        return GpuWindow(index=self.index, seconds=seconds, throttled_s=throttled_s, power_cap_w=cap_w, power_cap_default_w=default_w)

    def _fields_ns(self) -> dict[int, int]:
        with contextlib.suppress(self.nvml.NVMLError, AttributeError):
            values = self.nvml.nvmlDeviceGetFieldValues(self.handle, [field for source in SOURCES.values() for field in source.fields])
            return {one.fieldId: int(getattr(one.value, _WIDE[one.valueType])) for one in values if one.nvmlReturn == 0 and one.valueType in _WIDE}
        return {}

    def _policy_ns(self, source: Source) -> dict[int, int]:
        with contextlib.suppress(self.nvml.NVMLError, AttributeError):
            if source.policy is not None:
                return {_POLICY: int(self.nvml.nvmlDeviceGetViolationStatus(self.handle, source.policy).violationTime)}
        return {}

    def _watts(self, name: str) -> float | None:
        with contextlib.suppress(self.nvml.NVMLError, AttributeError):
            return float(getattr(self.nvml, name)(self.handle)) / 1e3
        return None


def _board(uuid: str) -> _Board | None:
    found = nvml.board(uuid)
    if found is None:
        return None
    library, handle = found
    try:
        return _Board(library, handle, library.nvmlDeviceGetIndex(handle))
    except library.NVMLError:
        return None


def _seconds_since(earlier: Mapping[int, int], later: Mapping[int, int], window_s: float) -> float | None:
    """The most that any of a reason's fields counted; None where none of them counts time."""
    passed = [(later[field] - earlier[field]) / 1e9 for field in earlier.keys() & later.keys()]
    possible = [min(seconds, window_s) for seconds in passed if 0 <= seconds <= _FAST * window_s + _LATE_S]
    return max(possible, default=None)
