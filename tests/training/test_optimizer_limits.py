"""An optimizer that an engine cannot combine with the rest is a skip with its reason, before any start."""

from __future__ import annotations

import pytest
from planning import make_plan


def skip_of(words: list[str]) -> str | None:
    skip = make_plan("hardware=cpu", "parallelism.dp=2", *words).skip
    return skip and skip.reason


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["engine=deepspeed", "optimizer=lomo", "precision=fp32"], "set engine=torch"),
        (
            ["engine=deepspeed", "optimizer=adafactor", "method=Z2"],
            "Z2: optimizer=adafactor keeps rows and columns of matrices",
        ),
        (["engine=torch", "optimizer=adafactor", "method=Z3"], "which FSDP2's ranks hold in parts"),
        (["engine=torch", "optimizer=adamw8bit", "method=Z3"], "take no partitioned tensors of FSDP2"),
        (["engine=torch", "optimizer=lion", "precision=bf16_pure"], "set precision.moments=fp32"),
        (["engine=torch", "optimizer=lomo", "method=Z1", "precision=fp32"], "leave Z out"),
        (["engine=torch", "optimizer=lomo", "precision=bf16_mixed"], "without a copy in fp32"),
        (["engine=torch", "optimizer=lomo", "precision=fp32", "batch.accumulation=2"], "set batch.accumulation=1"),
        (
            ["engine=torch", "optimizer=lomo", "precision=fp32", "parallelism.pp=2", "batch.accumulation=2"],
            "set parallelism.pp=1",
        ),
        (["engine=torch", "optimizer=adalomo", "precision=fp32", "model=tiny-moe"], "stacks of them"),
        (["engine=deepspeed", "optimizer=muon", "method=Z1"], "or set engine=torch with Z1, Z2 or Z3"),
        (["engine=torch", "optimizer=muon", "method=Z3+O"], "leave O out"),
        (["engine=torch", "optimizer=muon", "parallelism.pp=2", "batch.accumulation=2"], "set parallelism.pp=1"),
        (["engine=torch", "optimizer=muon", "model=tiny-moe"], "stacks of matrices"),
        (["engine=torch", "optimizer=muon", "task=finetune", "method=P"], "P trains no matrix"),
        (["engine=deepspeed", "optimizer=soap"], "set engine=torch"),
        (["engine=torch", "optimizer=soap", "method=Z1"], "its squares belong to whole matrices"),
        (["engine=torch", "optimizer=soap", "method=Z3"], "leave Z out"),
        (["engine=torch", "optimizer=soap", "parallelism.pp=2", "batch.accumulation=2"], "set parallelism.pp=1"),
        (["engine=torch", "optimizer=soap", "model=tiny-moe"], "which are stacks of matrices, for one tensor"),
        (["engine=torch", "optimizer=soap", "+optimizer.options.merge_dims=true"], "optimizer.options.merge_dims"),
        (["engine=torch", "optimizer=soap", "parallelism.tp=2"], "optimizer=adamw and sgd, not with soap"),
        (["engine=torch", "optimizer=soap", "kernels.fused_projections=true"], "updates a matrix as a whole"),
        (["engine=megatron", "optimizer=muon", "precision=fp32"], "its optimizer is AdamW"),
        (["engine=megatron", "optimizer=sgd", "precision=fp32"], "its optimizer is AdamW"),
    ],
)
def test_the_reason_says_what_would_do(words: list[str], reason: str) -> None:
    assert reason in str(skip_of(words))


@pytest.mark.parametrize(
    "words",
    [
        ["engine=deepspeed", "optimizer=adafactor"],
        ["engine=deepspeed", "optimizer=lion8bit", "method=Z3+O"],
        ["engine=torch", "optimizer=adafactor", "method=Z1"],
        ["engine=torch", "optimizer=lion", "precision=bf16_pure", "precision.moments=fp32"],
        ["engine=torch", "optimizer=sgd", "method=Z3"],
        ["engine=torch", "optimizer=muon", "method=Z3"],
        ["engine=deepspeed", "optimizer=muon", "task=finetune", "method=L"],
        ["engine=torch", "optimizer=lomo", "precision=bf16_pure"],
        ["engine=torch", "optimizer=soap", "precision=bf16_mixed", "method=F+R"],
    ],
)
def test_what_would_do_is_planned(words: list[str]) -> None:
    assert skip_of(words) is None
