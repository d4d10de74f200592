"""A package of somebody else's adds a dtype: runs are planned and trained in it, and microbenchmarks compute in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmexp.record.folder import find_runs

Llmexp = Callable[..., "subprocess.CompletedProcess[str]"]
WORDS = ("model=tiny", "hardware=box", "precision=fp64", "engine=torch")
QUICK = ("measure=smoke", "tracking=none", "measure.threads_per_rank=1")


@pytest.mark.ranks
@pytest.mark.slow
def test_a_run_trains_in_it_and_holds_the_bytes_that_were_planned(
    installed: Path, llmexp: Llmexp, tmp_path: Path
) -> None:
    done = llmexp(installed, *WORDS, *QUICK)
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(tmp_path / "outputs")
    plan, rank = (json.loads((run.path / name).read_text()) for name in ("plan.json", "repeat.0/rank.0.json"))
    parameters = plan["parameters"]
    states = {"parameters": 8, "gradients": 8, "optimizer": 16}
    assert {name: plan["memory"][name]["device"] for name in states} == {
        name: size * parameters for name, size in states.items()
    }
    assert {name: rank["state_bytes"][name] for name in ("parameters", "gradients")} == {
        name: plan["memory"][name] for name in ("parameters", "gradients")
    }
    assert rank["what_ran"]["products_in"] == "fp64"


def test_microbenchmarks_compute_in_it_and_have_its_limit_and_peak(
    installed: Path, llmexp: Llmexp, tmp_path: Path
) -> None:
    sizes = ("micro=gemm", "micro.gemm.m=[64]", "micro.gemm.nk=[[64,64]]", "micro.gemm.m_of_model=[]")
    quick = ("micro.ranks=1", "measure.samples=5", "measure.point_limit_s=0.01", "tracking=none")
    peak = "+hardware.peak_flops_per_s.fp64=1e12"
    done = llmexp(installed, "task=micro", "hardware=box", "micro.dtypes=[fp64]", *sizes, *quick, peak)
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(tmp_path / "outputs")
    result = run.result()
    (point,) = result.points
    assert (point.params["dtype"], point.problem) == ("fp64", "")
    assert result.metrics["gemm_fp64_flops_per_s"].mean == pytest.approx(point.metrics["flops_per_s"].mean)
    table = llmexp(installed, "report", "outputs/main", "--format", "markdown").stdout
    assert "% of peak" in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("engine=deepspeed", "precision=fp64"), "precision=fp64: engine=deepspeed trains parameters in fp32 and bf16"),
        (("engine=megatron", "precision=fp64"), "precision=fp64: engine=megatron trains parameters in fp32 and bf16"),
        (("task=serve", "serve.dtype=fp64"), "computes in fp32 and bf16 here: leave serve.dtype out"),
    ],
)
def test_an_engine_that_does_not_state_it_skips_the_run(
    installed: Path, llmexp: Llmexp, words: tuple[str, ...], said: str
) -> None:
    done = llmexp(installed, "plan", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert said in str(json.loads(done.stdout)["plan"]["skip"])


def test_without_the_package_it_is_no_dtype(llmexp: Llmexp, tmp_path: Path) -> None:
    done = llmexp(tmp_path, "plan", "task=micro", "micro.dtypes=[fp64]")
    assert done.returncode == 2
    assert "fp32" in done.stderr
    assert "bf16" in done.stderr
