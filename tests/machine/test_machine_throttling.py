from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from llmexp.machine.throttling import throttle_counters


class FakeNvml(ModuleType):
    """One board: fields that it names count nanoseconds, and policy 1 counts what no field does.

    It has no cap by default.
    """

    class NVMLError(Exception):
        pass

    def __init__(self, **fields):
        super().__init__("pynvml")
        self.fields = {int(name.removeprefix("field_")): value for name, value in fields.items()}

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid != "GPU-a":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetIndex(self, handle):  # noqa: N802
        return 3

    def nvmlDeviceGetFieldValues(self, handle, fields):  # noqa: N802
        found = {number: self.fields.get(number) for number in fields}
        return [
            SimpleNamespace(fieldId=number, nvmlReturn=3 * (ns is None), valueType=3, value=SimpleNamespace(ullVal=ns))
            for number, ns in found.items()
        ]

    def nvmlDeviceGetViolationStatus(self, handle, policy):  # noqa: N802
        if policy != 1:
            raise self.NVMLError("not supported")
        return SimpleNamespace(violationTime=900)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):  # noqa: N802
        return 400_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle):  # noqa: N802
        raise self.NVMLError("not supported")


def test_a_reason_is_counted_by_its_fields_or_else_by_its_policy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(field_74=5, field_253=7))
    counters = throttle_counters("GPU-a")
    assert counters.read_ns() == {"heat": {-1: 900}, "power brake": {253: 7}, "power cap": {74: 5}}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(field_75=1, field_269=2))
    assert throttle_counters("GPU-a").read_ns() == {"heat": {75: 1, 269: 2}}


def test_caps_are_in_watts_and_unknown_where_the_board_does_not_tell(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    counters = throttle_counters("GPU-a")
    assert (counters.index, counters.power_cap_w(), counters.power_cap_default_w()) == (3, 400, None)


@pytest.mark.parametrize("library", [None, FakeNvml()], ids=["no library", "no such GPU"])
def test_a_gpu_that_nvml_does_not_know_has_none(monkeypatch, library):
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert throttle_counters("GPU-b") is None
