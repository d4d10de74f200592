from __future__ import annotations

import csv
import io
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from patience import HANG_S
from planning import make_plan

from llmexp.launch.collect import conclude
from llmexp.launch.ending import SUCCESS
from llmexp.record.folder import RunFolder
from llmexp.record.identity import process_identity
from llmexp.record.samples import TrainingSummary
from llmexp.report.table import build_report
from llmexp.report.text import comma_separated, markdown
from llmexp.sweep import concurrent_runs
from llmexp.sweep.concurrent_runs import may_stand_beside, run_all, run_alone, worth_it
from llmexp.training.plan.training_plan import TrainingPlan

DEVICES = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
H100 = {"name": "h100", "interconnect": "NVLink 4", "devices_per_node": 4, "device": "cuda"}
PCIE = {**H100, "name": "rtx4090", "interconnect": "PCIe 4.0 x16"}


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))


@pytest.fixture
def plan(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., TrainingPlan]:
    def make(method: str = "F", ranks: int = 1, hardware: dict[str, object] = H100, **changes: object) -> TrainingPlan:
        return tiny_plan(method, hardware=hardware, parallelism__dp=ranks, **changes)

    return make


class Recorder:
    """Stands in for the processes: a run ends when as many run at once as it waits for, and says who was beside it."""

    def __init__(self, at_once: int) -> None:
        self.met = threading.Barrier(at_once)
        self.now: dict[str, tuple[str, ...]] = {}
        self.beside: list[tuple[str, ...]] = []
        self.lock = threading.Lock()

    def __call__(self, plan: TrainingPlan, devices: Sequence[str]) -> bool:
        with self.lock:
            assert not {device for taken in self.now.values() for device in taken} & set(devices)
            self.now[plan.method] = tuple(devices)
            self.beside.append(tuple(self.now))
        if plan.method in ("F", "R"):
            self.met.wait(timeout=HANG_S)
        with self.lock:
            del self.now[plan.method]
        return plan.method != "R"


def test_runs_stand_side_by_side_on_disjoint_devices(plan) -> None:
    ran = Recorder(at_once=2)
    returned = run_all([plan("F", 2), plan("R", 2)], DEVICES, ran)
    assert ran.beside[-1] == ("F", "R")
    assert returned == [True, False]


class Measuring:
    """Stands in for the processes with runs that leave folders; F ends once R has begun, and R once F has ended."""

    def __init__(self, write_samples: Callable[..., None]) -> None:
        self.write_samples = write_samples
        self.second_began, self.first_ended = threading.Event(), threading.Event()

    def __call__(self, plan: TrainingPlan, devices: Sequence[str]) -> bool:
        folder, began_s = RunFolder(plan.folder), time.time()
        folder.write(folder.plan_path, plan)
        folder.event("running", **process_identity())
        if plan.method == "F":
            assert self.second_began.wait(timeout=HANG_S)
        if plan.method == "R":
            self.second_began.set()
            assert self.first_ended.wait(timeout=HANG_S)
        self._conclude(plan, folder, began_s)
        if plan.method == "F":
            self.first_ended.set()
        return True

    def _conclude(self, plan: TrainingPlan, folder: RunFolder, began_s: float) -> None:
        """Let the measured window be all of the run's time."""
        repeat, known = (
            folder.repeat(0),
            {"parameters": 1, "trainable_parameters": 1, "peak_rss_bytes": 1, "state_bytes": {}, "what_ran": {}},
        )
        window_s = time.time() - began_s
        self.write_samples(repeat, 0, [(window_s / 10, 5.0)] * 10, warmup=())
        folder.write(
            repeat / "rank.0.json", TrainingSummary(rank=0, window_wall_s=window_s, time_to_first_step_s=1.0, **known)
        )
        conclude(plan, folder, SUCCESS, {"cpu": {"usable_cores": 16, "logical_cores": 16}})


def test_each_result_names_the_runs_that_stood_beside_it_and_the_table_says_so(
    plan, tmp_path: Path, write_samples
) -> None:
    """F and R share a part of their time; Z2+O and Naive have the machine to themselves, one after the other."""
    sweep = {"name": "main", "outputs": str(tmp_path)}
    plans = [plan(method, sweep=sweep) for method in ("F", "R", "Z2+O", "Naive")]
    run_all(plans, DEVICES, Measuring(write_samples))
    names = {one.method: one.folder_name for one in plans}
    found = {
        one.method: json.loads((one.folder / "result.json").read_text())["stability"]["concurrent_runs"]
        for one in plans
    }
    assert found == {"F": [names["R"]], "R": [names["F"]], "Z2+O": [], "Naive": []}
    report = build_report([RunFolder(one.folder) for one in plans])
    text = markdown(report)
    for method in ("F", "R"):
        assert (
            f"measured beside 1 other run ({names[method]}) on the same machine: they share power, fans and the host"
            in text
        )
    assert text.count("measured beside") == 2
    assert [row["concurrent_runs"] for row in csv.DictReader(io.StringIO(comma_separated(report)))] == [
        names["R"],
        names["F"],
        "",
        "",
    ]


def test_runs_of_deepspeeds_launcher_which_takes_the_first_gpus_have_the_machine_to_themselves(plan) -> None:
    launcher = {"name": "deepspeed", "launcher": "deepspeed"}
    devices: list[Sequence[str]] = []

    def ran(_: TrainingPlan, given: Sequence[str]) -> bool:
        devices.append(given)
        return True

    run_all([plan("F"), plan("R", 2, engine=launcher), plan("Z2", 2, engine=launcher)], DEVICES, ran)
    assert devices[1:] == [["GPU-a", "GPU-b"]] * 2


def test_a_run_that_would_disturb_has_the_machine_to_itself(plan) -> None:
    ran = Recorder(at_once=2)
    run_all([plan("F"), plan("R"), plan("Z2+O"), plan("Naive")], DEVICES, ran)
    alone = ran.beside[[beside[-1] for beside in ran.beside].index("Z2+O")]
    assert alone == ("Z2+O",)
    assert ran.beside[-1] == ("Naive",)


@pytest.mark.parametrize(
    ("words", "shares"),
    [
        ({}, True),
        ({"ranks": 2}, True),
        ({"ranks": 2, "hardware": PCIE}, False),
        ({"hardware": PCIE}, True),
        ({"method": "Z3+O"}, False),
        ({"hardware": {**H100, "nodes": 2}, "ranks": 4}, False),
    ],
)
def test_what_may_stand_beside_others(plan, words: dict[str, object], shares: bool) -> None:
    assert may_stand_beside(plan(**words)) is shares


def test_too_few_cores_keep_runs_apart(plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
    assert not may_stand_beside(plan())


@pytest.mark.parametrize(("protocol", "shares"), [("quick", True), ("paper", False), ("adaptive", False)])
def test_what_is_to_be_published_has_the_machine_to_itself(plan, protocol: str, shares: bool) -> None:
    assert may_stand_beside(plan(measure__name=protocol)) is shares


def test_it_takes_two_runs_and_devices_for_both(plan) -> None:
    assert worth_it([plan("F"), plan("R", 2)], DEVICES)
    assert not worth_it([plan("F")], DEVICES)
    assert not worth_it([plan("F", 4), plan("R")], DEVICES)
    assert not worth_it([plan("F"), plan("Z2+O")], DEVICES)


def test_a_server_has_as_many_devices_as_it_computes_on() -> None:
    words = ("task=serve", "model=7b", "hardware=h100", "hardware.devices_per_node=4")
    of_two, of_one = (make_plan(*words, f"parallelism.tp={degree}") for degree in (2, 1))
    taken = []
    run_all([of_two, of_one], DEVICES, lambda _, devices: not taken.append(len(devices)))
    assert sorted(taken) == [1, 2]
    assert not worth_it([of_two, make_plan(*words, "parallelism.tp=4")], DEVICES)


def test_a_process_of_its_own_sees_its_devices_alone_and_records(
    plan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is no GPU here, which is what the run must find out: in its own folder, as a failure of its own."""
    planned = plan(sweep={"name": "main", "outputs": str(tmp_path)})
    assert run_alone(planned, ["GPU-c"])
    (folder,) = (tmp_path / "main").glob("tiny_F_*")
    assert "hardware=h100 does not match this node" in (folder / "result.json").read_text()
    assert "tiny F · failed" in capfd.readouterr().err


def test_the_devices_are_told_by_the_environment(plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        concurrent_runs, "ALONE", ("sh", "-c", f"cat > /dev/null; echo $CUDA_VISIBLE_DEVICES > {tmp_path}/seen")
    )
    assert run_alone(plan(), ["GPU-c", "GPU-d"])
    assert (tmp_path / "seen").read_text() == "GPU-c,GPU-d\n"
