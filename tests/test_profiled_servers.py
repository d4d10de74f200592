"""serve.profile=true as a person types it: real servers are profiled after their load, and the report says where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.cli.resolvers import server_python
from llmexp.record.breakdown import RunBreakdown, read_breakdown
from llmexp.record.folder import RunFolder, find_runs
from llmexp.record.ranges import DECODE
from llmexp.record.samples import read_samples
from llmexp.record.timeline import read_timeline
from llmexp.serving.record.profiled_load import ProfiledLoad, read_profiled_load
from llmexp.serving.record.requests import RequestSample

pytestmark = [pytest.mark.ranks, pytest.mark.long]
WORDS = (
    *("hardware=cpu", "model=tiny", "serve.concurrency=2", "serve.requests=4", "serve.warmup_requests=2"),
    *("serve.prompt.tokens=9", "serve.output.tokens=5", "measure.threads_per_rank=1", "tracking=none"),
)


def profiled(folder: Path, *words: str) -> tuple[str, RunFolder, ProfiledLoad, RunBreakdown]:
    """Run paper_table10 and check that its measured requests are those without a profile."""
    command = [sys.executable, "-m", "llmexp", "experiment=paper_table10", *WORDS, *words]
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = find_runs(folder / "outputs")
    repeat = run.repeats()[0]
    load, found = read_profiled_load(repeat), read_breakdown(run)
    assert load
    assert found
    assert (load.problem, load.requests, load.load) == ("", 4, "2 at a time")
    measured, again = (read_samples(repeat / name, RequestSample) for name in ("samples.0.jsonl", "profiled.jsonl"))
    assert len(measured) == len(again) == 6
    assert {sample.point for sample in measured} == {0}
    assert {sample.point for sample in again} == {1}
    assert [sample.problem for sample in (*measured, *again)] == [""] * 12
    step = read_timeline(run)
    assert step
    assert (run.figures / "timeline.png").stat().st_size > 10_000
    return done.stdout, run, load, found


def steps(found: RunBreakdown) -> dict[str, int]:
    return {phase.phase: phase.steps for phase in found.ranks[0].phases if phase.phase}


def parts(found: RunBreakdown) -> set[str]:
    return {module.path[-1] for module in found.ranks[0].modules if module.path}


@pytest.mark.slow
def test_transformers_profiles_itself(tmp_path: Path) -> None:
    out, _, _, found = profiled(tmp_path, "engine=transformers", "~engine.options.max_sequences")
    told = steps(found)
    # Two times two requests: their first tokens come of their prompts, and four more of decode.
    assert told.pop(DECODE) >= 4
    assert sum(told.values()) >= 2
    assert {"QKV", "RoPE", "Core attention", "Gate", "RMSNorm", "LM head"} <= parts(found)
    assert "where the time of a profiled server's steps went" in out
    assert "table X of the paper, a step of serving by kernels" in out
    assert "table XI of the paper, a step of serving by stages" in out
    assert "NOT the paper's run" in out


def test_vllm_is_profiled_by_its_routes(tmp_path: Path) -> None:
    python = server_python("vllm")
    if not python:
        pytest.skip("needs vLLM: `make serve-venv` installs it")
    out, _, _, found = profiled(tmp_path, "engine=vllm", f"engine.python={python}")
    assert steps(found)[DECODE] >= 4
    assert {"QKV", "RoPE", "Core attention", "Gate and up", "Output", "Down", "Sampling"} <= parts(found)
    assert "table X of the paper" in out


def test_a_server_without_a_profiler_is_skipped_and_says_so(tmp_path: Path) -> None:
    words = ["task=serve", "hardware=cpu", "model=tiny", "engine=llama_cpp", "serve.profile=true", "tracking=none"]
    done = subprocess.run(
        [sys.executable, "-m", "llmexp", "plan", *words], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S
    )
    assert "serve.profile=true: llmexp knows no profiler of engine=llama_cpp" in done.stdout
