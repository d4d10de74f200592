"""Steps on a processor: which microbenchmarks they go by, and what each part of a step follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmexp.machine import processor
from llmexp.record.predicted import Prediction
from llmexp.record.result import Metric, ResultPoint, RunResult, to_json
from llmexp.training.predict import unpredicted
from tests.planning import make_plan

WORDS = ("model=tiny", "hardware=cpu", "precision=bf16_mixed", "data.seq_len=256")
_ATTENTION = {"batch": 1, "heads": 4, "seq_len": 512}
# Sizes and seconds of the points that predictions go by.
POINTS: dict[str, tuple[dict[str, int], float]] = {
    "device_to_device": ({"bytes": 1024}, 6e-7),
    "gemm": ({"m": 1000, "n": 1000, "k": 1000}, 0.02),
    "rms_norm": ({"tokens": 1000, "hidden": 100}, 1e-4),
    "cross_entropy": ({"tokens": 1000, "vocab": 500}, 4e-4),
    "unfused_forward": (_ATTENTION, 3e-3),
    "unfused_backward": (_ATTENTION, 8e-3),
    "flash_forward": (_ATTENTION, 2e-3),
    "flash_backward": (_ATTENTION, 6e-3),
    "adamw_on_device": ({"parameters": 4_000_000}, 3e-3),
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a run of task=micro whose calls take so many times those of POINTS."""

    def made(ranks: int = 2, threads: int = 1, times: float = 1.0, torch: str = "2.0", **slower: float) -> Path:
        points = [
            _point(kind, sizes, time_s * times * slower.get(kind, 1.0), dtype)
            for dtype in ("bf16", "fp32")
            for kind, (sizes, time_s) in POINTS.items()
        ]
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            points += [_point(kind, {"bytes": size}, 2e-4 + size * 1e-9, "") for size in (1024, 4194304)]
        number = len(list(tmp_path.glob("main/micro_*")))
        known: dict[str, Any] = {
            "id": f"{number:012}",
            "stack": "0",
            "engine": "micro",
            "hardware": "cpu",
            "sweep": "main",
        }
        environment = {"cpu": {"model": processor.model()}, "torch_threads": threads, "torch": torch}
        ended_at = f"2026-01-01T00:00:{number:02}+00:00"
        ranked = {"processes": ranks, "devices": ranks, "command": "", "points": points, "ended_at": ended_at}
        result = RunResult(status="success", task="micro", environment=environment, **known, **ranked)
        folder = tmp_path / "main" / f"micro_limits_{number:012}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(to_json(result))
        return folder

    return made


def _point(kind: str, sizes: dict[str, int], time_s: float, dtype: str) -> ResultPoint:
    own = {"dtype": dtype} if dtype else {}
    return ResultPoint(
        params={"family": kind, "kind": kind, **own, **sizes}, metrics={"time_p5_s": Metric(mean=time_s)}
    )


@pytest.fixture
def predicted(tmp_path: Path) -> Callable[..., Prediction]:
    def made(*words: str) -> Prediction:
        ranks = [] if any("devices" in word for word in words) else ["hardware.devices_per_node=2"]
        own = [f"sweep.outputs={tmp_path}", "measure.threads_per_rank=1", *ranks]
        found = make_plan(*WORDS, *own, *words).predicted
        assert found is not None
        return found

    return made


def test_a_step_goes_by_the_microbenchmarks_of_its_outputs_folder(write: Write, predicted) -> None:
    write()
    found = predicted("method=Naive")
    assert found.source == "microbenchmarks of this processor (main/micro 000000000000)"
    assert found.low < found.rate < found.high
    assert set(found.parts_s) == {
        "forward", "recomputation", "backward", "communication", "update", "update on the host",
    }  # fmt: skip


@pytest.mark.parametrize("other", [{"ranks": 1}, {"threads": 2}])
def test_microbenchmarks_of_other_ranks_or_threads_do_not_count(
    write: Write, tmp_path: Path, other: dict[str, int]
) -> None:
    write(**other)
    plan = make_plan(*WORDS, f"sweep.outputs={tmp_path}", "measure.threads_per_rank=1", "hardware.devices_per_node=2")
    words = "task=micro hardware=cpu micro.ranks=2 measure.threads_per_rank=1"
    assert unpredicted(plan) == f"this processor is not measured yet: llmexp {words}"


def test_each_point_counts_where_it_was_fastest(write: Write, predicted) -> None:
    write()
    first = predicted("method=F")
    write(times=3.0)
    assert predicted("method=F").parts_s == pytest.approx(first.parts_s)
    write(times=3.0, torch="3.0")
    assert predicted("method=F").rate < 0.8 * first.rate


@pytest.mark.parametrize(
    ("slower", "parts", "words"),
    [
        ("device_to_device", {"forward", "recomputation", "backward", "communication", "update"}, "method=R+Z3"),
        ("gemm", {"forward", "backward"}, "method=Naive"),
        ("rms_norm", {"forward", "recomputation", "backward"}, "method=R"),
        ("cross_entropy", {"backward"}, "method=Naive"),
        ("flash_forward", {"forward"}, "method=F"),
        ("unfused_backward", {"backward"}, "method=Naive"),
        ("adamw_on_device", {"update"}, "method=Naive"),
        ("adamw_on_device", {"update on the host"}, "method=Z2+O"),
    ],
)
def test_a_slower_call_or_kernel_makes_its_parts_slower(
    write: Write, predicted, slower: str, parts: set[str], words: str
) -> None:
    folder = write()
    quick = predicted(words)
    folder.joinpath("result.json").unlink()
    write(**{slower: 4.0})
    slow = predicted(words)
    changed = {name for name in quick.parts_s if slow.parts_s[name] != pytest.approx(quick.parts_s[name])}
    assert changed == parts
    assert all(slow.parts_s[name] > 1.02 * quick.parts_s[name] for name in parts)


@pytest.mark.parametrize(
    ("slower", "quicker"),
    [
        (("method=R",), ("method=Naive",)),
        (("method=Z3",), ("method=Z2",)),
        (("method=Naive", "model=125m"), ("method=Naive",)),
        (("method=Naive",), ("method=Naive", "batch.micro=4")),
    ],
)
def test_what_costs_time_is_predicted_slower(write: Write, predicted, slower, quicker) -> None:
    write()
    assert predicted(*slower).rate < predicted(*quicker).rate


def test_fp32_is_predicted_too(write: Write, predicted) -> None:
    write()
    plan = predicted("method=Naive")
    assert plan.rate > 0
    assert json.loads(plan.model_dump_json())["rate"] == plan.rate


def test_a_damaged_result_of_microbenchmarks_is_left_out(write: Write, predicted) -> None:
    write()
    before = predicted("method=F")
    write(times=0.5).joinpath("result.json").write_text("{")
    assert predicted("method=F") == before
