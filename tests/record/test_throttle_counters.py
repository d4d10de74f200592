import sys
from types import ModuleType, SimpleNamespace

import pytest

from llmexp.record import throttle_counters
from llmexp.record.throttle_counters import ThrottleMeter

SETTING, COUNTER = 1, 3
"""NVML's types of values."""


class FakeNvml(ModuleType):
    """Boards whose fields are (type, value, nanoseconds more a second).

    A field that a board does not name is not supported.
    """

    class NVMLError(Exception):
        pass

    def __init__(self, seconds, boards, policies=()):
        super().__init__("pynvml")
        self.seconds, self.boards, self.policies, self.lost = seconds, boards, dict(policies), False

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid not in self.boards:
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetIndex(self, handle):  # noqa: N802
        return list(self.boards).index(handle)

    def nvmlDeviceGetFieldValues(self, handle, fields):  # noqa: N802
        if self.lost:
            raise self.NVMLError("GPU is lost")
        return [self._field(number, self.boards[handle].get(number)) for number in fields]

    def nvmlDeviceGetViolationStatus(self, handle, policy):  # noqa: N802
        if policy not in self.policies or self.lost:
            raise self.NVMLError("not supported")
        return SimpleNamespace(violationTime=round(7e9 + self.policies[policy] * self.seconds()))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):  # noqa: N802
        return 400_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle):  # noqa: N802
        return 700_000

    def _field(self, number, told):
        if told is None:
            return SimpleNamespace(fieldId=number, nvmlReturn=3, valueType=0, value=SimpleNamespace())
        kind, begun, a_second = told
        value = round(begun + a_second * self.seconds())
        return SimpleNamespace(
            fieldId=number, nvmlReturn=0, valueType=kind, value=SimpleNamespace(uiVal=value, ullVal=value)
        )


@pytest.fixture
def metered(monkeypatch):
    """What is found over 50 s of boards with these fields and policies."""
    passed = [1000.0]
    monkeypatch.setattr(throttle_counters, "perf_counter", lambda: passed[0])

    def measure(fields, policies=(), uuid="GPU-b", between=lambda nvml: None):
        nvml = FakeNvml(lambda: passed[0], {"GPU-a": {}, "GPU-b": fields}, policies)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        with ThrottleMeter(uuid) as meter:
            passed[0] += 50
            between(nvml)
        return meter.found

    return measure


@pytest.mark.parametrize("numbers", [(251, 252, 253), (269, 270, 271)], ids=["drivers to 580", "newer ones"])
def test_fields_count_over_the_window_whichever_numbers_the_driver_has_for_them(metered, numbers):
    """What the other numbers then mean are settings, some of them wide, which stand still."""
    heat, by_hardware, brake = numbers
    settings = dict.fromkeys({251, 252, 253, 269, 270, 271} - set(numbers), (COUNTER, 100, 0))
    counters = {
        74: (COUNTER, 5e12, 2e8),
        75: (COUNTER, 0, 4e7),
        heat: (COUNTER, 0, 5e7),
        by_hardware: (COUNTER, 9e9, 2e7),
        brake: (COUNTER, 0, 0),
    }
    found = metered(settings | counters)
    assert (found.index, found.seconds) == (1, 50)
    expected = {"power cap": 10.0, "heat": 2.5, "heat, by hardware": 1.0, "power brake": 0.0}
    assert found.throttled_s == pytest.approx(expected)
    assert (found.power_cap_w, found.power_cap_default_w) == (400, 700)


def test_policies_count_where_no_field_does(metered):
    found = metered({77: (COUNTER, 0, 1e8)}, policies={0: 1e8, 1: 2e7, 3: 9e8})
    assert found.throttled_s == pytest.approx({"power cap": 5.0, "heat": 1.0, "board limit": 5.0})


def test_a_setting_that_stands_at_a_counter_s_number_is_none(metered):
    assert metered({74: (COUNTER, 0, 0), 270: (SETTING, 40, 0)}).throttled_s == {"power cap": 0}


@pytest.mark.parametrize("a_second", [-1e7, 2e9], ids=["starts again", "faster than time"])
def test_what_does_not_count_nanoseconds_is_not_believed(metered, a_second):
    assert metered({74: (COUNTER, 9e12, a_second), 75: (COUNTER, 0, 0)}).throttled_s == {"heat": 0}


def test_a_counter_that_comes_in_steps_is_never_more_than_the_window(metered):
    assert metered({75: (COUNTER, 0, 1.01e9)}).throttled_s == {"heat": 50}


@pytest.mark.parametrize("uuid", [None, "GPU-unknown", "GPU-a"], ids=["no GPU", "not NVML's", "counts nothing"])
def test_where_nothing_counts_nothing_is_found(metered, uuid):
    assert metered({74: (COUNTER, 0, 0)}, uuid=uuid) is None


def test_a_gpu_that_is_lost_meanwhile_spoils_the_counters_and_not_the_run(metered):
    assert metered({74: (COUNTER, 0, 0)}, between=lambda nvml: setattr(nvml, "lost", True)) is None


def test_without_nvml_nothing_is_found(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with ThrottleMeter("GPU-b") as meter:
        pass
    assert meter.found is None
