"""task=micro with real ranks, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.folder import RunFolder, find_runs

WORDS = ("task=micro", "hardware=cpu", "tracking=none", "measure.point_limit_s=0.05")
SMALL = (
    "micro.dtypes=[fp32]",
    "micro.gemm={m:[16],nk:[[32,8]],m_of_model:[]}",
    "micro.memory.bytes=[65536]",
    "micro.copies.bytes=[1024,4096,65536]",
    "micro.collectives.bytes=[4096]",
    "micro.attention.seq_lens=[32]",
    "micro.operators.tokens=[32]",
    "micro.optimizer.parameters=[1000]",
    "micro.disk.bytes=[65536]",
)

pytestmark = pytest.mark.ranks


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llmexp", *WORDS, *words], cwd=folder, capture_output=True, text=True, timeout=HANG_S
    )


def the_run(folder: Path) -> RunFolder:
    (found,) = find_runs(folder / "outputs")
    return found


def test_two_ranks_measure_every_limit_and_the_report_shows_tables_and_curves(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL)
    assert done.returncode == 0, done.stderr
    result = the_run(tmp_path).result()
    assert result
    problems = {point.problem for point in result.points if point.params["family"] != "disk"}
    assert problems == {""}
    kinds = {point.params["kind"] for point in result.points}
    assert {"gemm", "triad", "all_reduce", "send_recv", "flash_backward", "rope", "adamw_on_device"} <= kinds
    by_kind = {point.params["kind"]: point.metrics for point in result.points}
    algorithm, bus = (by_kind["all_gather"][f"{name}_bytes_per_s"] for name in ("algbw", "busbw"))
    assert algorithm
    assert bus
    assert bus.mean == pytest.approx(algorithm.mean / 2)
    limits = {name for name, metric in result.metrics.items() if metric}
    assert {"gemm_fp32_flops_per_s", "all_reduce_busbw_bytes_per_s"} <= limits
    assert "matrix products in fp32" in done.stdout
    cache, data = result.what_ran["cache_bytes"]["device"], by_kind["triad"]["data_bytes"]
    assert data
    is_beyond = cache is not None and data.mean >= 2 * cache
    assert ("memory_bytes_per_s" in limits) is is_beyond
    assert is_beyond or ("in the cache" if cache else "cache unknown") in done.stdout
    assert "causal attention" in done.stdout
    assert f"point {len(result.points)}/" not in done.stdout
    sweep = the_run(tmp_path).path.parent
    assert {path.name for path in sweep.glob("*.png")} >= {"report.png", "report_copies.png"}
    assert {path.name for path in the_run(tmp_path).figures.iterdir()} == {"rates_copies.png"}


@pytest.mark.slow
def test_one_rank_has_no_collectives_and_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "micro=collectives", "micro.collectives.bytes=[1024]", "micro.ranks=1")
    assert done.returncode == 0, done.stderr
    assert "7 of 7 points not measured" in done.stderr
    assert "not measured: needs two ranks or more" in done.stdout


@pytest.mark.slow
def test_a_run_that_is_ended_keeps_its_points(tmp_path: Path) -> None:
    """The second point takes longer than the run may, and its ranks are killed."""
    done = run(
        tmp_path,
        "micro=gemm",
        "micro.dtypes=[fp32]",
        "micro.gemm={m:[16,20000],nk:[[32,8],[20000,20000]],m_of_model:[]}",
        "micro.ranks=1",
        "measure.timeout_s=12",
    )
    assert done.returncode == 1
    found = json.loads(the_run(tmp_path).result_path.read_text())
    assert found["status"] == "timeout"
    assert [bool(point["metrics"]) for point in found["points"]][:2] == [True, True]
    assert found["points"][-1]["problem"]
    assert "GFLOP/s" in done.stdout
    assert "ended here" in done.stdout


@pytest.mark.gpu
def test_on_a_gpu_every_limit_is_measured_with_its_clock(tmp_path: Path) -> None:
    words = [word for word in SMALL if "dtypes" not in word]
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", *(word for word in WORDS if "hardware" not in word), *words, "micro.ranks=1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    result = the_run(tmp_path).result()
    assert result
    problems = {point.problem for point in result.points if point.params["family"] not in ("disk", "collectives")}
    assert problems == {""}
    limits = {name for name, metric in result.metrics.items() if metric}
    assert {"gemm_bf16_flops_per_s", "host_to_device_pinned_bytes_per_s"} <= limits
    assert result.what_ran["cache_bytes"]["device"]
    assert any("sm_clock_megahertz" in point.metrics for point in result.points)
