from dataclasses import replace

import pytest

from llmexp.analysis import contention
from llmexp.analysis.contention import Machine, sm_clocks
from llmexp.record.result import SmClock
from llmexp.record.samples import GpuWindow

ALL = {"power cap": 0.0, "heat": 0.0, "heat, by hardware": 0.0, "power brake": 0.0}


def disturbances(machine: Machine) -> list[str]:
    return [doubt.words for doubt in contention.disturbances(machine)]


def card(highest, boost=None, default=None):
    """The clocks that NVML says a card has, in MHz, as it is delivered."""
    told = {
        "sm_clock_max": highest,
        "clock_boost": boost,
        "application_clock": default,
        "application_clock_default": default,
    }
    return {f"{name}_megahertz": value for name, value in told.items() if value}


H100, GEFORCE, V100 = card(1980, 1980, 1980), card(3105), card(1530, 1530, 1290)


def window(index=0, seconds=100.0, cap_w=700.0, **seconds_of):
    known = ALL | {name.replace("_by", ", by").replace("_", " "): value for name, value in seconds_of.items()}
    return GpuWindow(index=index, seconds=seconds, throttled_s=known, power_cap_w=cap_w, power_cap_default_w=700.0)


def machine(*windows, samples=(), within=()):
    return Machine([(sample, 5.0) for sample in samples], cores=16, wanted_cores=2, within=within, counted=windows)


def gpu(index=0, **values):
    told = {"own_processes": 1, "other_processes": 0, "throttle_reasons": 0, "utilization_percentage": 99} | values
    return {f"gpu_{index}_{name}": value for name, value in told.items()}


def under_load(kind, clocks, **values):
    """A run whose samples inside the window have these clocks."""
    samples = [gpu(**kind | {"sm_clock_megahertz": clock} | values) for clock in clocks]
    return machine(samples=samples, within=samples)


@pytest.mark.parametrize(
    ("of_100_s", "said"),
    [
        ({"heat": 12.34}, "GPU 0 throttled (heat) for 12.3 of 100.0 s, 12.3 % of the window"),
        ({"heat_by_hardware": 1.1}, "GPU 0 throttled (heat, by hardware) for 1.1 of 100.0 s, 1.1 % of the window"),
        ({"power_brake": 50.0}, "GPU 0 throttled (power brake) for 50.0 of 100.0 s, 50.0 % of the window"),
        (
            {"power_cap": 60.0, "cap_w": 400.0},
            "GPU 0 throttled (power cap lowered to 400 W from 700 W) for 60.0 of 100.0 s, 60.0 % of the window",
        ),
    ],
)
def test_more_than_a_hundredth_of_the_window_speaks_against_a_run(of_100_s, said):
    assert disturbances(machine(window(**of_100_s))) == [said]


@pytest.mark.parametrize(
    "of_100_s",
    [{"heat": 0.9}, {"heat_by_hardware": 1.0}, {"power_cap": 99.0}, {"sync_boost": 99.0, "reliability": 99.0}],
)
def test_a_moment_the_card_s_own_power_cap_and_what_is_no_throttling_do_not(of_100_s):
    assert disturbances(machine(window(**of_100_s))) == []


def test_each_gpu_is_judged_by_the_repeat_in_which_it_was_throttled_most():
    quiet, worst = window(1), window(1, seconds=50.0, heat=5.0)
    said = disturbances(replace(machine(window(0), quiet, window(1, heat=2.0), worst), name="node 1"))
    assert said == ["node 1: GPU 1 throttled (heat) for 5.0 of 50.0 s, 10.0 % of the window"]


@pytest.mark.parametrize("bit", [0x08, 0x20, 0x40, 0x80])
def test_samples_do_not_tell_of_what_is_counted_on_every_gpu(bit):
    hot = gpu(throttle_reasons=bit, temperature_celsius=90)
    assert disturbances(machine(window(heat=0.2), window(1), samples=[hot])) == []
    for windows in ((), (window(), None)):
        (said,) = disturbances(machine(*windows, samples=[hot]))
        assert "in 1 of 1 samples, up to 90 °C" in said


def test_samples_tell_of_what_is_not_counted():
    only_heat = GpuWindow(index=0, seconds=100.0, throttled_s={"heat": 0.0})
    samples = [
        gpu(throttle_reasons=0x20 | 0x80),
        gpu(throttle_reasons=0x04, power_cap_watts=300, power_cap_default_watts=700),
    ]
    assert disturbances(machine(only_heat, samples=samples)) == [
        "GPU 0 throttled (power brake) in 1 of 2 samples, up to 0 °C",
        "GPU 0 throttled (power cap lowered to 300 W from 700 W) in 1 of 2 samples",
    ]


@pytest.mark.parametrize(
    ("kind", "clock", "full"), [(H100, 1005, 1980), (GEFORCE, 1500, 3105), (card(1980, 1980, 1005), 1005, 1980)]
)
def test_a_low_clock_that_stands_still_under_load_without_a_reason_is_locked(kind, clock, full):
    (said,) = disturbances(under_load(kind, [clock] * 3))
    assert said == f"GPU 0 throttled: clocks locked at {clock} MHz of {full} MHz"


@pytest.mark.parametrize(
    ("kind", "clocks", "values"),
    [
        (H100, [1005, 1005], {}),
        (H100, [1800, 1800, 1800], {}),
        (H100, [1005, 1020, 1035], {}),
        (H100, [1005, 1005, 1005], {"throttle_reasons": 0x04}),
        (H100, [1005, 1005, 1005], {"throttle_reasons": 0x200}),
        (H100, [1005, 1005, 1005], {"utilization_percentage": 60}),
        (GEFORCE, [2520, 2520, 2520], {}),
        ({}, [1005, 1005, 1005], {}),
        (V100, [1290, 1290, 1290], {"throttle_reasons": 0x02}),
    ],
    ids=[
        "few samples",
        "high enough",
        "it moves",
        "power",
        "a reason not known here",
        "waits",
        "GeForce",
        "no highest clock",
        "as delivered",
    ],
)
def test_what_may_be_else_than_locked_is_not_called_so(kind, clocks, values):
    assert disturbances(under_load(kind, clocks, **values)) == []


def test_a_card_locked_at_its_base_clock_is_told_by_the_setting_that_nvml_does_not_name():
    (said,) = disturbances(under_load(V100, [1290] * 3, throttle_reasons=0))
    assert said == "GPU 0 throttled: clocks locked at 1290 MHz of 1530 MHz"


def test_an_application_clock_below_the_default_is_named_by_itself():
    low = H100 | {"application_clock_megahertz": 1200}
    (said,) = disturbances(under_load(low, [1200], utilization_percentage=70, throttle_reasons=0x02))
    assert said == "GPU 0 throttled: application clock set to 1200 MHz, by default it is 1980 MHz"
    assert disturbances(under_load(low, [1980, 1200], throttle_reasons=0x02)) == []


def test_clocks_are_those_of_the_run_s_gpus_at_moments_inside_the_windows():
    inside = [
        gpu(**H100, sm_clock_megahertz=clock) | gpu(1, own_processes=0, sm_clock_megahertz=300)
        for clock in (1980, 1755)
    ]
    after = gpu(**H100, sm_clock_megahertz=345)
    one = replace(machine(samples=[*inside, after], within=inside), name="node 1")
    assert sm_clocks(one) == [
        SmClock(gpu="node 1: GPU 0", mean_megahertz=1867.5, lowest_megahertz=1755, card_megahertz=1980, samples=2)
    ]
    assert sm_clocks(machine(samples=[after])) == []


def test_a_power_cap_that_holds_the_clock_down_is_told_with_the_clock_and_is_no_doubt():
    within = [gpu(**H100, sm_clock_megahertz=1505, throttle_reasons=0x04)]
    run = machine(window(power_cap=25.0), window(power_cap=99.96), window(1, power_cap=1.0), within=within)
    run = replace(run, samples=[(sample, 5.0) for sample in within])
    assert disturbances(run) == []
    (clock,) = sm_clocks(run)
    assert (clock.power_cap_watts, clock.share_at_power_cap, clock.mean_megahertz) == (700.0, 1.0, 1505)
    (uncounted,) = sm_clocks(replace(run, counted=[None]))
    assert (uncounted.power_cap_watts, uncounted.share_at_power_cap) == (None, None)


def test_where_nobody_knows_whose_processes_are_where_ranks_name_their_gpus():
    inside = [gpu(0, own_processes=0, sm_clock_megahertz=1980) | gpu(1, own_processes=0, sm_clock_megahertz=300)]
    assert [clock.gpu for clock in sm_clocks(machine(window(1), samples=inside, within=inside))] == ["GPU 1"]
    assert [clock.gpu for clock in sm_clocks(machine(samples=inside, within=inside))] == ["GPU 0", "GPU 1"]


def test_gpus_of_a_machine_are_no_concern_of_a_run_on_its_processors():
    busy = replace(under_load(H100, [1005] * 3, throttle_reasons=0x40), on_gpus=False)
    assert (disturbances(busy), sm_clocks(busy)) == ([], [])
