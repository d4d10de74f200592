"""What `llmexp plan --trace-memory` prints: a table of a rank that took two steps without memory, or why it cannot."""

from __future__ import annotations

import re

import pytest

TINY = ("model=tiny", "hardware=a800", "parallelism.dp=1", "precision=bf16_pure")


@pytest.mark.ranks
def test_each_moment_stands_beside_the_formula(llmexp):
    code, out, told = llmexp(
        "plan", "--trace-memory", "method=F", "data.seq_len=2048", "batch.micro=16", "engine=torch", *TINY
    )
    head, columns, *lines = out.splitlines()
    assert code == 0
    assert "one rank, 16 x 2048 tokens a pass; step 2, traced by torch" in head
    assert told.startswith("tracing tiny F ...")
    moments = {line[:14].rstrip(): [float(cell) for cell in line[14:].split()] for line in lines[:3]}
    # The update is not the fullest moment here, and has no formula.
    *parts, together = moments.pop("most in update")
    assert sum(parts) == pytest.approx(together, abs=0.05)
    assert list(moments) == ["forward ends", "most in passes"]
    assert columns.split()[-2:] == ["all", "formula"]
    for *parts, together, formula in moments.values():
        assert sum(parts) == pytest.approx(together, abs=0.05)
        assert formula == pytest.approx(together, abs=0.02, rel=0.01)
    traced, formula = map(int, re.findall(r"\d+", next(line for line in lines if line.startswith("activations"))))
    assert formula == pytest.approx(traced, rel=0.01)


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.parametrize("engine", ["torch", "deepspeed"])
def test_at_real_size_both_estimates_of_a_sharded_run_agree_within_a_twentieth(llmexp, engine, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    words = ("model=7b", "method=F+R+Z3", "precision=bf16_mixed", "batch.micro=2", "hardware=a800")
    code, out, _ = llmexp("plan", "--trace-memory", f"engine={engine}", *words)
    assert code == 0
    traced, formula = max(
        ([float(cell) for cell in line.split()[-2:]] for line in out.splitlines()[2:5] if len(line.split()) == 12),
        key=max,
    )
    assert traced > 14
    assert formula == pytest.approx(traced, rel=0.05)
    assert not list(tmp_path.iterdir()), "nothing is compiled"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["engine=megatron"], "has no ranks without a device: set engine=torch or engine=deepspeed"),
        (["engine=deepspeed", "optimizer=deepspeed_adamw", "method=Z2"], "which is compiled: set optimizer=adamw"),
        (["batch.micro=max"], "batch.micro=max is searched for: set a number"),
        (["parallelism.pp=2", "batch.accumulation=2"], "degrees other than dp wait"),
        (["method=C"], "leave C out"),
        (["engine=deepspeed", "method=Q"], "Q's and QL's weights are traced with engine=torch only"),
        (["memory.activation_offload=true"], "a traced rank has one memory: leave them out"),
        (["kernels.liger=true"], "set kernels.liger=false"),
        (["method=Z3+O", "parallelism.pp=2", "batch.accumulation=2"], "O: pipeline stages have not been tried"),
        (["task=micro", "micro=gemm"], "applies to training only, and task=micro does not"),
        (["--json"], "leave --json out"),
    ],
)
def test_what_cannot_be_traced_is_one_line(words, reason, llmexp):
    base = () if words[0].startswith("task=") else (*TINY, *["engine=torch"] * (not words[0].startswith("engine=")))
    code, out, told = llmexp("plan", "--trace-memory", *base, *words)
    assert (code, out) == (2, "")
    assert reason in told
    assert len(told.splitlines()) == 1
