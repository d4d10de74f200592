"""Which limits are put beside a run: those of its own machine, the latest of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmexp.errors import ConfigError
from llmexp.record.calibration import Calibration, calibration_for
from llmexp.record.result import Metric, RunResult, RunStatus, Stability, to_json

CPU = {
    "device_type": "cpu",
    "cpu": {"model": "a processor"},
    "torch": "2.13.0",
    "torch_threads": 2,
    "cpu_capability": "AVX2",
}
GPU = {"device_type": "cuda", "device_name": "a card", "torch": "2.13.0"}
LIMITS = {"memory_bytes_per_s": 5.0, "all_reduce_busbw_bytes_per_s": 2.0}


def measured(outputs: Path, name: str, day: int = 1, /, **changes: Any) -> Path:
    fields = {"environment": CPU, "processes": 2, "status": RunStatus.SUCCESS, "task": "micro"} | changes
    result = RunResult(
        id="0",
        stack="0",
        engine="micro",
        hardware="here",
        sweep="main",
        devices=2,
        command="",
        ended_at=f"2026-11-{day:02}T10:00:00+00:00",
        metrics={name: Metric(mean=value * day) for name, value in LIMITS.items()},
        **fields,
    )
    folder = outputs / "main" / f"micro_{name}"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(to_json(result))
    return folder


def found(outputs: Path, processes: int = 2, environment: dict[str, Any] = CPU, choice: str = "auto") -> Calibration:
    calibration = calibration_for(choice, outputs, processes, environment)
    assert calibration
    return calibration


def test_the_latest_of_the_same_machine_is_taken_with_its_date(tmp_path: Path) -> None:
    measured(tmp_path, "old", 1)
    new = measured(tmp_path, "new", 2)
    measured(tmp_path, "failed", 3, status=RunStatus.FAILED)
    calibration = found(tmp_path)
    assert (calibration.run, calibration.day, calibration.limits) == (
        str(new),
        "2026-11-02",
        {"memory_bytes_per_s": 10.0, "all_reduce_busbw_bytes_per_s": 4.0},
    )


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": {"model": "another"}},
        {"torch": "2.12.0"},
        {"torch_threads": 4},
        {"cpu_capability": "AVX512"},
        {"device_type": "cuda", "device_name": "a card"},
    ],
)
def test_another_device_library_or_share_of_a_processor_has_other_limits(tmp_path: Path, change: Any) -> None:
    measured(tmp_path, "limits", environment=CPU | change)
    assert calibration_for("auto", tmp_path, 2, CPU) is None


def test_on_a_cpu_the_number_of_ranks_counts_and_on_gpus_for_collectives_only(tmp_path: Path) -> None:
    measured(tmp_path, "cpu", processes=4)
    assert calibration_for("auto", tmp_path, 2, CPU) is None
    measured(tmp_path, "gpu", environment=GPU, processes=8)
    assert set(found(tmp_path, 8, GPU).limits) == set(LIMITS)
    assert set(found(tmp_path, 2, GPU).limits) == {"memory_bytes_per_s"}


def test_none_is_none_and_a_folder_is_taken_whatever_machine_it_is_of(tmp_path: Path) -> None:
    folder = measured(tmp_path, "gpu", environment=GPU)
    assert calibration_for("none", tmp_path, 2, GPU) is None
    assert found(tmp_path / "nowhere", 2, CPU, str(folder)).run == str(folder)
    assert found(tmp_path / "nowhere", 2, CPU, str(folder / "result.json")).limits == LIMITS


def test_what_disturbed_the_limits_is_kept_with_them(tmp_path: Path) -> None:
    measured(tmp_path, "limits", stability=Stability(verdict="unstable", reasons=["contention: a lot"]))
    assert found(tmp_path).doubt == "contention: a lot"


def test_a_damaged_result_hides_no_other(tmp_path: Path) -> None:
    good = measured(tmp_path, "good")
    (measured(tmp_path, "bad", 2) / "result.json").write_text("{")
    assert found(tmp_path).run == str(good)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": "pretrain"}, "its task is pretrain and it ended as success; limits come from a successful run of"),
        ({"status": RunStatus.OOM}, "its task is micro and it ended as oom"),
    ],
)
def test_a_folder_of_another_kind_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    folder = measured(tmp_path, "other", **change)
    with pytest.raises(ConfigError, match=said):
        calibration_for(str(folder), tmp_path, 2, CPU)


def test_a_folder_that_is_not_there_is_one_line_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory; choices are auto, none and the folder of a run"):
        calibration_for(str(tmp_path / "gone"), tmp_path, 2, CPU)
