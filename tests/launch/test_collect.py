from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from made_up_tokens import TOKENS

from llmexp.analysis.contention import windows_unix_s
from llmexp.launch.collect import conclude
from llmexp.launch.ending import SUCCESS, Ending
from llmexp.launch.run import run_one
from llmexp.record.result import RunStatus, Stability
from llmexp.record.samples import RankFailure


def words(found: Stability) -> list[str]:
    return [doubt.words for doubt in found.reasons]


@pytest.fixture
def measured(make_plan, folder):
    """A plan whose two repeats took steps of exactly one length."""
    plan = make_plan("well", warmup_steps=5, steps=20, repeats=2)
    run_one(plan, folder)
    return plan


def test_a_result_has_its_verdict_and_interval(measured, folder):
    result = folder.result()
    judged, rate = result.stability, result.metrics["tokens_per_s"].mean
    assert (judged.source, judged.low, judged.high) == ("repeats", pytest.approx(rate), pytest.approx(rate))
    assert (judged.drift_ratio, judged.warmup_ratio) == (pytest.approx(1), pytest.approx(1))


def test_what_a_result_rests_on_is_on_the_disk_before_it(measured, folder, monkeypatch):
    forced = []
    monkeypatch.setattr(os, "fsync", lambda file: forced.append(Path(os.readlink(f"/proc/self/fd/{file}"))))
    conclude(measured, folder, SUCCESS, cores(2))
    *before, result = [
        path for path in forced if path.suffix != ".json" or "repeat" in path.parent.name or "result" in path.name
    ]
    assert {path for repeat in folder.repeats() for path in repeat.glob("samples.*")} <= set(before)
    assert {path for repeat in folder.repeats() for path in repeat.glob("rank.*")} <= set(before)
    assert result.name.startswith(f".{folder.result_path.name}.")


@pytest.mark.parametrize(("other_cores", "verdict"), [(0.0, "stable"), (1.0, "unstable")])
def test_others_on_the_cores_that_ranks_compute_with_make_it_unstable(measured, folder, other_cores, verdict):
    busy(folder, other_cores)
    assert conclude(measured, folder, SUCCESS, cores(2)).stability.verdict == verdict


@pytest.mark.parametrize("other_cores", [0.0, 1.0])
def test_another_machine_of_the_run_is_judged_by_its_own_samples(measured, folder, other_cores):
    busy(folder, 0.1)
    busy(folder, other_cores, node=1)
    config = measured.config.model_copy(update={"hardware": measured.config.hardware.model_copy(update={"nodes": 2})})
    environment = cores(8) | {"other_nodes_cpu": [cores(2)["cpu"]]}
    judged = conclude(measured.model_copy(update={"config": config}), folder, SUCCESS, environment).stability
    said = (
        "node 1: contention: other processes took 1.00 of 2 cores while the ranks compute with 2 (highest load average "
        "0.0)"
    )
    assert (words(judged), judged.other_cores) == ([said] if other_cores else [], max(other_cores, 0.1))


def test_ranks_beside_gpus_need_a_core_each(measured, folder):
    busy(folder, 5.9)
    plan = on_gpus(measured)
    verdicts = {count: conclude(plan, folder, SUCCESS, cores(count)).stability.verdict for count in (4, 8)}
    assert verdicts == {4: "unstable", 8: "stable"}


def test_what_nvml_counted_for_the_ranks_of_a_machine_speaks_against_the_run_and_samples_that_it_makes_needless_do_not(
    measured, folder
):
    plan = on_gpus(measured)
    folder.system_path.unlink()
    tell(folder, gpu_0_throttle_reasons=0x20, gpu_0_own_processes=1)
    count(folder, rank=0, heat=0.0)
    assert "GPU 0 throttled (heat) in 1 of 1 samples, up to 0 °C" in words(
        conclude(plan, folder, SUCCESS, cores(8)).stability
    )
    count(folder, rank=1, heat=0.3)
    assert words(conclude(plan, folder, SUCCESS, cores(8)).stability) == [
        "GPU 1 throttled (heat) for 0.3 of 2.0 s, 15.0 % of the window"
    ]
    plan = on_gpus(measured, nodes=2)
    said = "node 1: GPU 1 throttled (heat) for 0.3 of 2.0 s, 15.0 % of the window"
    assert said in words(conclude(plan, folder, SUCCESS, cores(8) | {"other_nodes_cpu": [cores(8)["cpu"]]}).stability)


def test_the_result_has_the_clocks_that_the_run_s_gpus_ran_at_inside_the_window(measured, folder):
    folder.system_path.unlink()
    (began_s, ended_s), _ = windows_unix_s(repeat / "samples.0.jsonl" for repeat in folder.repeats())
    for at_s, clock in (((began_s + ended_s) / 2, 1410.0), (ended_s + 1, 210.0)):
        tell(folder, at_s, gpu_0_sm_clock_megahertz=clock, gpu_0_sm_clock_max_megahertz=1980.0, gpu_0_own_processes=1)
    conclude(on_gpus(measured), folder, SUCCESS, cores(8))
    (clock,) = json.loads(folder.result_path.read_text())["stability"]["sm_clocks"]
    assert clock == {
        "gpu": "GPU 0",
        "mean_megahertz": 1410,
        "lowest_megahertz": 1410,
        "card_megahertz": 1980,
        "samples": 1,
        "power_cap_watts": None,
        "share_at_power_cap": None,
    }
    assert conclude(measured, folder, SUCCESS, cores(8)).stability.sm_clocks == []


def test_a_diverged_run_is_an_answer_that_says_so(measured, folder):
    assert folder.result().reason == ""
    path = folder.repeat(1) / "samples.0.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(json.dumps(line | {"loss": None if line["index"] >= 7 else line["loss"]}) + "\n" for line in lines)
    )
    result = conclude(measured, folder, SUCCESS, cores(2))
    assert (result.status, result.reason) == ("success", "the loss diverged: no finite number at step 7 of repeat 1")
    assert result.metrics["tokens_per_s"].mean > 0


def test_a_run_that_was_not_measured_has_no_verdict(make_plan, folder):
    assert run_one(make_plan("out_of_memory"), folder).stability is None


def cores(count):
    return {"cpu": {"usable_cores": count, "logical_cores": count}}


def test_a_result_has_no_secret_that_a_failure_tells(measured, folder):
    told = "\n".join(f"{issuer}: {token}" for issuer, token in TOKENS.items())
    failure = RankFailure(rank=0, kind="error", message=told, traceback=told)
    conclude(measured, folder, Ending(RunStatus.FAILED, f"rank 0: {told}", failure), cores(2) | {"proxies": [told]})
    written = folder.result_path.read_text() + folder.events_path.read_text()
    assert "Hugging Face: ***" in folder.result().reason
    assert [issuer for issuer, token in TOKENS.items() if token in written] == []


def busy(folder, other_cores, node=0):
    """Let one sample of a machine tell of the whole run."""
    folder.system_of(node).write_text(
        json.dumps({"at_s": time.time() + 1, "interval_s": 1000.0, "cpu_other_cores": other_cores})
    )


def on_gpus(plan, nodes=1):
    hardware = plan.config.hardware.model_copy(update={"device": "cuda", "nodes": nodes})
    return plan.model_copy(update={"config": plan.config.model_copy(update={"hardware": hardware})})


def tell(folder, at_s=None, **sample):
    """Add a sample of the machine."""
    with folder.system_path.open("a") as file:
        file.write(json.dumps({"at_s": at_s or time.time() + 1, "interval_s": 1000.0} | sample) + "\n")


def count(folder, rank, heat):
    """Let a rank's GPU have been held down by heat for so many seconds of each repeat."""
    for path in (repeat / f"rank.{rank}.json" for repeat in folder.repeats()):
        counted = {"index": rank, "seconds": 2.0, "throttled_s": {"heat": heat}}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"gpu": counted}))
