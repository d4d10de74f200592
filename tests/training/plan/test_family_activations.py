"""The formula of families against what a traced rank keeps, and where it says that it does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from planning import make_plan
from published_sizes import DEEPSEEK_V3, GPT_OSS, LLAMA, MAMBA2, OLMO3, QWEN3_MOE, QWEN3_NEXT
from tiny_architectures import TINY, configured

from llmexp.inputs.architecture.reading import architecture_of
from llmexp.training.plan.activations import Activations
from llmexp.training.plan.family_activations import activations_of_folder, unknown_activations
from llmexp.training.plan.fit import fit_of, largest_micro
from llmexp.training.plan.kept_by_family import FAMILIES
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.traced_table import traced_table

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning"),
]
WITHIN = 0.03
# Of the most that a layer's backward holds besides, the formula has the largest terms.
WITHIN_PEAK = 0.2
# The formula does not know gpt_oss with F. On a CPU F takes no deepseek_v3, and mamba2 has no attention.
UNFUSED = ("gpt_oss", "deepseek_v3", "mamba2")
TRACED = [
    (case, method, precision)
    for case in TINY
    for method, precision in (("Naive", "bf16_pure"), ("F", "fp32"), ("R", "fp32"), ("F+R", "bf16_pure"))
    if case.split()[0] in FAMILIES and not ("F" in method and case.split()[0] in UNFUSED)
]


def plan_of_folder(folder: Path, *words: str) -> TrainingPlan:
    return make_plan("model=hf", f"model.path={folder}", "model.weights=random", "data=synthetic", *words)


def plan_of_case(case: str, folder: Path, *words: str, vocabulary: int | None = None) -> TrainingPlan:
    config = configured(case)
    config.vocab_size = vocabulary or config.vocab_size
    config.architectures = ["Of" + case.split()[0]]
    config.save_pretrained(folder)
    alone = ("hardware=cpu", "engine=torch", "parallelism.dp=1", "data.seq_len=128", "batch.micro=2")
    return plan_of_folder(folder, *alone, *words)


def counted(plan: TrainingPlan) -> Activations:
    found = activations_of_folder(plan.config, plan.techniques, plan.dims, plan.batch.micro)
    assert found
    return found


@pytest.mark.parametrize(("case", "method", "precision"), TRACED)
def test_a_traced_rank_keeps_what_the_formula_counts(case: str, method: str, precision: str, tmp_path: Path) -> None:
    """The tracer lists every tensor of two real steps of the tiny model."""
    from llmexp.launchers.torch_native.worker import build
    from llmexp.launchers.tracing.tracer import trace

    torch.set_num_threads(1)
    plan = plan_of_case(case, tmp_path, f"method={method}", f"precision={precision}")
    traced = trace(plan, build, lambda _: None)
    found, step = counted(plan), traced.steps[1]
    assert found.kept == pytest.approx(step.forward_end.activations, rel=WITHIN)
    assert f"the formula says {found.kept / 256:.0f}" in traced_table(plan, traced)
    assert found.peak == pytest.approx(step.passes.activations + step.passes.temporary, rel=WITHIN_PEAK)


@pytest.mark.parametrize("precision", ["bf16_pure", "fp32"])
@pytest.mark.parametrize("case", ["llama biases", "gemma3_text", "qwen3_moe", "mamba2"])
def test_a_head_that_makes_gradients_in_chunks_keeps_them(case: str, precision: str, tmp_path: Path) -> None:
    """All logits of a vocabulary of 4096 would be most of what is kept."""
    from llmexp.launchers.torch_native.worker import build
    from llmexp.launchers.tracing.tracer import trace

    torch.set_num_threads(1)
    words = ("kernels.chunked_loss=true", f"precision={precision}", "data.seq_len=512", "batch.micro=4")
    plan = plan_of_case(case, tmp_path, "method=Naive", *words, vocabulary=4096)
    found, step = counted(plan), trace(plan, build, lambda _: None).steps[1]
    assert found.kept == pytest.approx(step.forward_end.activations, rel=WITHIN)
    assert found.peak == pytest.approx(step.passes.activations + step.passes.temporary, rel=WITHIN_PEAK)


@pytest.mark.parametrize("precision", ["bf16_pure", "fp32"])
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("qwen3_next", ("data.seq_len=65", "batch.micro=1")),
        ("qwen3_next", ("data.seq_len=100", "batch.micro=3")),
        ("mamba2", ("data.seq_len=9", "batch.micro=3")),
        ("mamba2", ("data.seq_len=33", "batch.micro=1")),
    ],
)
def test_chunks_that_sequences_do_not_fill_are_kept_whole(
    case: str, words: tuple[str, ...], precision: str, tmp_path: Path
) -> None:
    from llmexp.launchers.torch_native.worker import build
    from llmexp.launchers.tracing.tracer import trace

    torch.set_num_threads(1)
    plan = plan_of_case(case, tmp_path, "method=Naive", f"precision={precision}", *words)
    found = trace(plan, build, lambda _: None).steps[1].forward_end.activations
    assert counted(plan).kept == pytest.approx(found, rel=0.05)


# Kept bytes a token of a sequence of 1024, all layers and the head, as `llmexp plan --trace-memory` traced them in
# bf16_pure with engine=torch. Its tracer lists the tensors of the real model's own code.
@pytest.mark.parametrize(
    ("sizes", "method", "a_token"),
    [
        pytest.param(QWEN3_MOE, "Naive", 20_084_644, id="Qwen3-30B-A3B Naive"),
        pytest.param(QWEN3_MOE, "F", 9_965_476, id="Qwen3-30B-A3B F"),
        pytest.param(OLMO3, "Naive", 15_321_316, id="OLMo-3-7B Naive"),
        pytest.param(OLMO3, "F", 9_033_956, id="OLMo-3-7B F"),
        pytest.param(LLAMA, "Naive", 13_653_772, id="Llama-3-8B Naive"),
        pytest.param(GPT_OSS, "Naive", 11_144_271, id="gpt-oss-20b Naive"),
        pytest.param(DEEPSEEK_V3, "Naive", 92_992_126, id="DeepSeek-V3 Naive"),
        pytest.param(QWEN3_NEXT, "Naive", 24_238_701, id="Qwen3-Next-80B-A3B Naive"),
        pytest.param(QWEN3_NEXT, "F", 22_986_093, id="Qwen3-Next-80B-A3B F"),
        pytest.param(MAMBA2, "Naive", 47_765_963, id="Mamba-2-2.7B Naive"),
    ],
)
def test_real_sizes_keep_what_was_traced(sizes: dict[str, Any], method: str, a_token: int, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    words = ("engine=torch", "precision=bf16_pure", "data.seq_len=1024", "batch.micro=1", "hardware=a800")
    assert counted(plan_of_folder(tmp_path, *words, f"method={method}")).kept / 1024 == pytest.approx(a_token, rel=0.01)


def test_a_plan_says_whether_it_fits(tmp_path: Path) -> None:
    """By the same sum as for models like Llama; more ranks that share the state leave more for activations."""
    (tmp_path / "config.json").write_text(json.dumps(OLMO3))
    words = ("hardware=a800", "precision=bf16_mixed", "data.seq_len=1024", "batch.micro=8")
    naive, shared = (plan_of_folder(tmp_path, *words, f"method={method}") for method in ("Naive", "F+R+Z3"))
    alone, together = fit_of(naive, 1), fit_of(shared, 8)
    assert alone
    assert together
    assert (alone.verdict, together.verdict) == ("no", "yes")
    assert together.parts["activations"] == counted(shared).peak
    assert (largest_micro(shared) or 0) > 1 == largest_micro(naive)
    assert shared.memory
    assert "not known" not in shared.memory.arithmetic


@pytest.mark.parametrize(
    ("case", "words", "reason"),
    [
        ("jamba", [], "these layers (--trace-memory counts them)"),
        ("llama4_text", [], "these layers (--trace-memory counts them)"),
        ("gpt_oss", ["method=F"], "these layers with F"),
        ("olmo3", ["method=RS"], "these layers with this method"),
        ("olmo3", ["memory.activation_offload=true"], "these layers with memory.activation_offload"),
    ],
)
def test_what_is_not_known_is_said(case: str, words: list[str], reason: str, tmp_path: Path) -> None:
    plan = plan_of_case(case, tmp_path, *words)
    made = architecture_of(plan.config.model)
    assert unknown_activations(made, plan.config, plan.techniques, plan.dims) == reason
    assert fit_of(plan, 1) is None
    assert plan.memory
    assert f"activations come on top, and are not known for {reason}" in plan.memory.arithmetic
