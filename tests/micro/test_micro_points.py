"""The points that a configuration asks for, and the results of what ranks left of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planning import make_plan

from llmexp.errors import ConfigError
from llmexp.micro.plan.micro_plan import MicroPlan
from llmexp.micro.points import BEFORE, DURING, read_unfinished, results
from llmexp.micro.record import CallSample

WORDS = ("task=micro", "hardware=cpu")


def plan(*words: str) -> MicroPlan:
    found: Any = make_plan(*WORDS, *words)
    assert isinstance(found, MicroPlan)
    return found


def points(*words: str) -> list[str]:
    return [str(point) for point in plan(*words).points]


def sample(index: int, times_s: list[float], problem: str = "") -> CallSample:
    return CallSample(index=index, warmup=False, t_start_s=index, t_end_s=index + 1.0, times_s=times_s, problem=problem)


def write(folder: Path, rank: int, samples: list[CallSample], more: str = "") -> None:
    lines = [one.model_dump_json() + "\n" for one in samples]
    (folder / f"samples.{rank}.jsonl").write_text("".join(lines) + more)


def test_a_choice_has_its_own_family_and_limits_has_all() -> None:
    assert {point.family for point in plan("micro=gemm").points} == {"gemm"}
    assert {point.family for point in plan("micro=limits").points} == {
        *("gemm", "memory", "copies", "collectives", "attention", "operators", "optimizer", "disk")
    }


def test_products_are_every_m_with_every_n_and_k_then_the_models_own_matrices() -> None:
    words = ("micro=gemm", "micro.gemm.m=[3,4]", "micro.gemm.nk=[[5,6],[7,8]]", "micro.dtypes=[fp32]")
    assert points(*words, "micro.gemm.m_of_model=[]") == [
        f"gemm fp32 m={m} n={n} k={k}" for n, k in ((5, 6), (7, 8)) for m in (3, 4)
    ]
    # Query and output of tiny are 128 x 128, key and value 64 x 128; then gate and up, down, and the head.
    own = points(*words, "micro.gemm.m_of_model=[9]")[4:]
    assert own == [f"gemm fp32 m=9 n={n} k={k}" for n, k in ((128, 128), (64, 128), (344, 128), (128, 344), (512, 128))]


def test_an_unaligned_sweep_adds_to_every_m() -> None:
    words = ("micro=fig11", "micro.gemm.nk=[[8,8]]", "micro.gemm.m=[512,1024]")
    assert points(*words) == ["gemm bf16 m=512 n=8 k=8", "gemm bf16 m=1024 n=8 k=8"]
    assert points(*words, "micro.gemm.m_plus=13") == ["gemm bf16 m=525 n=8 k=8", "gemm bf16 m=1037 n=8 k=8"]


def test_figure_11_and_table_12_are_the_papers() -> None:
    wanted = plan("micro=fig11").config.micro.gemm
    assert wanted
    assert wanted.m == tuple(range(4096, 16385, 512))
    assert wanted.nk == ((4096, 4096), (11008, 4096), (16384, 16384))


def test_flash_attention_in_fp32_is_left_out_where_cuda_has_no_kernel_for_it() -> None:
    words = ("micro=attention", "micro.dtypes=[fp32,bf16]")
    assert "flash_forward fp32" in " ".join(points(*words))
    on_gpu: Any = make_plan("task=micro", "hardware=a800", *words)
    assert {point.kind for point in on_gpu.points if point.dtype == "fp32"} == {"unfused_forward", "unfused_backward"}


def test_each_fused_kernel_of_a_gpu_is_a_row_of_its_own() -> None:
    on_gpu: Any = make_plan("task=micro", "hardware=h100", "micro=attention")
    kernels = {point.kind.rpartition("_")[0] for point in on_gpu.points}
    assert kernels == {"unfused", "flash", "fa2", "cudnn"}
    with pytest.raises(ConfigError, match=r"micro.attention.kernels=fa2,cudnn: on cpu there are unfused and flash"):
        plan("micro=attention", "micro.attention.kernels=[unfused,fa2,cudnn]")


def test_ids_depend_on_the_points_and_not_on_how_they_were_asked_for() -> None:
    ids = {plan("micro=memory", "micro.memory.bytes=[1024]").id, plan("micro=memory", "micro.memory.bytes=[2048]").id}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("micro.gemm=null", "micro=gemm"), "micro=gemm has no points: set one of micro.gemm, micro.memory"),
        (("micro=gemm", "model.target=a.b"), "its sizes are known only once it is built; take one"),
    ],
)
def test_what_has_no_points_is_said_before_anything_starts(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
        plan(*words)


def test_a_result_is_the_median_of_the_slowest_rank_with_rates_and_percentiles(tmp_path: Path) -> None:
    one = plan("micro=memory", "micro.memory.bytes=[1000]")
    write(tmp_path, 0, [sample(0, [1.0] * 101)])
    write(tmp_path, 1, [sample(0, [float(n) for n in range(100, 201)])])
    (found,) = results(one, [read_unfinished(tmp_path, 2)])
    means = {name: metric.mean for name, metric in found.metrics.items() if metric}
    assert means == {
        "time_s": 150.0,
        "time_p5_s": 105.0,
        "time_p95_s": 195.0,
        "samples": 101,
        "bytes_per_s": 3000 / 150,
        "data_bytes": 3000,
    }
    assert found.params == {"family": "memory", "kind": "triad", "bytes": 1000}


def test_several_repeats_show_how_far_apart_they_are(tmp_path: Path) -> None:
    one = plan("micro=memory", "micro.memory.bytes=[1000]")
    repeats = []
    for number in (1.0, 3.0):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, 0, [sample(0, [number] * 5)])
        repeats.append(read_unfinished(folder, 1))
    time_s = results(one, repeats)[0].metrics["time_s"]
    assert time_s
    assert (time_s.mean, time_s.n, round(time_s.std_between_repeats or 0, 3)) == (2.0, 2, 1.414)


def test_of_a_run_that_was_killed_every_point_that_all_ranks_measured_is_kept(tmp_path: Path) -> None:
    three = plan("micro=memory", "micro.memory.bytes=[1000,2000,3000,4000]")
    write(tmp_path, 0, [sample(0, [1.0] * 5), sample(1, [1.0] * 5)])
    write(tmp_path, 1, [sample(0, [1.0] * 5)], more='{"index": 1, "warm')
    found = results(three, [read_unfinished(tmp_path, 2)])
    assert [(bool(point.metrics), point.problem) for point in found] == [
        (True, ""),
        (False, DURING),
        (False, BEFORE),
        (False, BEFORE),
    ]


def test_a_rank_that_left_nothing_leaves_no_point(tmp_path: Path) -> None:
    one = plan("micro=memory", "micro.memory.bytes=[1000]")
    write(tmp_path, 0, [sample(0, [1.0] * 5)])
    assert [point.problem for point in results(one, [read_unfinished(tmp_path, 2)])] == [DURING]


def test_a_point_that_one_rank_could_not_measure_says_why(tmp_path: Path) -> None:
    one = plan("micro=memory", "micro.memory.bytes=[1000]")
    write(tmp_path, 0, [sample(0, [], "out of memory")])
    write(tmp_path, 1, [sample(0, [], "another rank could not measure it")])
    (found,) = results(one, [read_unfinished(tmp_path, 2)])
    assert (found.problem, found.metrics) == ("out of memory", {})
