import json
import os
from dataclasses import replace

import pytest

from llmexp.analysis import contention
from llmexp.analysis.contention import Machine, read_machine


def disturbances(machine: Machine) -> list[str]:
    return [doubt.words for doubt in contention.disturbances(machine)]


def machine(*samples, cores=2, wanted=2):
    return Machine([(sample, 5.0) for sample in samples], cores, wanted)


def gpu(index=0, **values):
    return {
        f"gpu_{index}_{name}": value
        for name, value in {"own_processes": 1, "other_processes": 0, "throttle_reasons": 0, **values}.items()
    }


@pytest.mark.parametrize(
    ("other", "cores", "wanted", "contended"),
    [
        (0.2, 2, 2, False),
        (0.5, 2, 2, True),
        (50.0, 128, 8, False),
        (121.0, 128, 8, True),
        (62.1, 64, 2, False),
        (62.9, 64, 2, True),
    ],
)
def test_others_contend_where_they_leave_fewer_cores_than_the_ranks_compute_with(other, cores, wanted, contended):
    assert bool(disturbances(machine({"cpu_other_cores": other}, cores=cores, wanted=wanted))) is contended


def test_a_hypervisor_that_takes_cores_contends_too_and_is_told_from_processes_here():
    (said,) = disturbances(machine({"cpu_other_cores": 0.01, "cpu_stolen_cores": 0.6}))
    assert said.startswith("contention: the hypervisor took 0.60 of 2 cores while the ranks compute with 2")
    (said,) = disturbances(machine({"cpu_other_cores": 0.2, "cpu_stolen_cores": 0.1}))
    assert said.startswith("contention: other processes took 0.20 and the hypervisor took 0.10 of 2 cores")
    assert disturbances(machine({"cpu_other_cores": 0.01, "cpu_stolen_cores": 0.6}, cores=8)) == []


def test_a_longer_stay_in_the_window_weighs_more():
    assert Machine(
        [({"cpu_other_cores": 1.0}, 1.0), ({"cpu_other_cores": 0.0}, 4.0), ({}, 9.0)], 2, 2
    ).other_cores == pytest.approx(0.2)
    assert machine().other_cores is None


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (gpu(other_processes=2), "contention: 2 other processes on GPU 0"),
        (
            gpu(throttle_reasons=0x40, temperature_celsius=91),
            "GPU 0 throttled (heat, by hardware) in 1 of 2 samples, up to 91 °C",
        ),
        (gpu(throttle_reasons=0x80), "GPU 0 throttled (power brake) in 1 of 2 samples, up to 0 °C"),
        (
            gpu(throttle_reasons=0x04, power_cap_watts=300.0, power_cap_default_watts=700.0),
            "GPU 0 throttled (power cap lowered to 300 W from 700 W) in 1 of 2 samples",
        ),
    ],
)
def test_what_holds_a_gpu_back_is_named(sample, reason):
    assert disturbances(machine(sample, gpu())) == [reason]


@pytest.mark.parametrize("bits", [0x01, 0x02, 0x04, 0x10, 0x100])
def test_idling_set_clocks_and_the_default_power_cap_are_no_throttling(bits):
    assert disturbances(machine(gpu(throttle_reasons=bits, power_cap_watts=700.0, power_cap_default_watts=700.0))) == []


def test_a_gpu_that_the_run_does_not_use_says_nothing():
    others = gpu(1, own_processes=0, other_processes=3, throttle_reasons=0x40)
    assert disturbances(machine(gpu(0) | others)) == []


@pytest.mark.parametrize(
    ("from_s", "written_s"), [(None, 1000), (990.0, 4600)], ids=["an earlier version's", "a file server an hour ahead"]
)
def test_only_samples_of_the_measured_window_are_read(from_s, written_s, tmp_path, write_samples):
    """Ten steps of a second, two of them warm-up, the last of which ends at 1000: the window is 992 to 1000."""
    write_samples(tmp_path / "repeat.0", 0, [(1.0, 5.0)] * 10, from_s=from_s)
    os.utime(tmp_path / "repeat.0" / "samples.0.jsonl", (written_s, written_s))
    at = {990.0: 9.0, 995.0: 0.5, 1000.0: 0.1, 1005.0: 9.0}
    lines = [json.dumps({"at_s": at_s, "interval_s": 5.0, "cpu_other_cores": cores}) for at_s, cores in at.items()]
    (tmp_path / "system.jsonl").write_text("\n".join(lines))
    read = read_machine(tmp_path / "system.jsonl", [tmp_path / "repeat.0" / "samples.0.jsonl"], cores=2, wanted_cores=2)
    assert [(sample["at_s"], seconds) for sample, seconds in read.samples] == [(995.0, 3.0), (1000.0, 5.0)]
    assert read.other_cores == pytest.approx((3 * 0.5 + 5 * 0.1) / 8)


def test_what_is_said_of_one_machine_of_several_names_it():
    (said,) = disturbances(replace(machine({"cpu_other_cores": 1.0}), name="node 1"))
    assert said.startswith("node 1: contention: other processes took 1.00 of ")


def test_a_run_without_samples_of_the_machine_is_not_disturbed(tmp_path):
    (tmp_path / "repeat.0").mkdir()
    (tmp_path / "repeat.0" / "samples.0.jsonl").write_text("")
    read = read_machine(
        tmp_path / "missing.jsonl", [tmp_path / "repeat.0" / "samples.0.jsonl"], cores=2, wanted_cores=2
    )
    assert (disturbances(read), read.other_cores) == ([], None)
