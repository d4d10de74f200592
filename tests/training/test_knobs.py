"""The switches of kernels and precisions: what does not go with them is a skip that says what would."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from planning import make_plan
from published_sizes import LLAMA

from llmexp.launchers.deepspeed.engine import DeepSpeedEngine
from llmexp.registry import get_engine
from llmexp.training.knobs import flash_limit, liger_limit, schedule_limit
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.repeats import RunConstants

Limit = Callable[..., str | None]
FP8, FP16 = "precision=fp8", "precision=fp16"
MX, WIDE = "precision.scaling=mxfp8", ("engine=torch", "model=tiny", "model.intermediate_size=352")
ADDED = "kernels.fused_accumulation=true"
ONE_RANK = ["engine=torch", "parallelism.dp=1", "batch.accumulation=2"]
CLIPPED = "optimizer.clip_norm=1.0"
CHUNKED = "kernels.chunked_loss=true"
FUSED = "kernels.fused_projections=true"
QAT = "precision.qat=int4"
MEGATRON_LM = (
    *("engine=script", "engine.options.preset=megatron_lm"),
    "engine.options.command='-m pretrain_gpt --log-interval 1'",
)
OFFLOAD, LIGER, CUDNN = "memory.activation_offload=true", "kernels.liger=true", "kernels.flash=cudnn"


def plan(*words: str) -> TrainingPlan:
    return make_plan("parallelism.dp=2", *words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([LIGER], "Liger's kernels are in Triton, for GPUs"),
        ([LIGER, "hardware=a800", "engine=megatron"], "not those of engine=megatron"),
        ([LIGER, "hardware=a800", "method=C"], "leave one of them out"),
        ([ADDED], "engine=deepspeed adds gradients itself: set engine=torch"),
        ([ADDED, *ONE_RANK, "batch.accumulation=1"], "one pass a step adds nothing: set batch.accumulation=2 or more"),
        ([ADDED, *ONE_RANK, "parallelism.dp=2"], "with dp=2: set all degrees to 1"),
        ([ADDED, *ONE_RANK, "parallelism.pp=2"], "with pp=2: set all degrees to 1"),
        ([ADDED, *ONE_RANK, "method=Z2"], "use Z1, or leave Z out"),
        ([ADDED, *ONE_RANK, "method=Q"], "Q, L, QL and P do not train the layers' matrices: leave it out"),
        ([ADDED, *ONE_RANK, "method=L", "task=finetune", "data=synthetic"], "do not train the layers' matrices"),
        ([ADDED, *ONE_RANK, LIGER, "hardware=a800"], "Liger's loss makes the gradient of the head itself"),
        (
            [CHUNKED, "engine=script", "engine.options.command='-m train'"],
            "engine=script does not change its models: set engine=torch, deepspeed or megatron",
        ),
        (
            [CHUNKED, "engine=torch", "parallelism.pp=2", "batch.accumulation=2", "parallelism.schedule=gpipe"],
            "schedule=gpipe has in flight, or backward is split: set 1f1b or interleaved",
        ),
        ([CHUNKED, LIGER, "hardware=a800"], "Liger computes the loss in chunks itself"),
        ([QAT, "engine=megatron"], "not those of engine=megatron: set engine=torch or engine=deepspeed"),
        ([QAT], "precision.qat_group_size=128 does not divide down_proj, 344 wide of model=tiny"),
        ([QAT, "method=L", "task=finetune", "data=synthetic"], "it rounds matrices that train"),
        ([QAT, "method=C"], "leave C out"),
        ([QAT, "engine=torch", "parallelism.tp=2"], "it has not been tried with precision.qat=int4"),
        ([QAT, "engine=torch", "parallelism.cp=2"], "it has not been tried with precision.qat=int4"),
        ([QAT, "engine=torch", "precision=fp8"], "precision.linears: set one of them"),
        ([QAT, FUSED], "kernels.fused_projections joins the matrices that it rounds"),
        ([QAT, ADDED, *ONE_RANK], "kernels.fused_accumulation has products of its own"),
        (
            [QAT, "engine=torch", "method=F+R", "model.intermediate_size=384", "memory.keep=products"],
            "memory.keep names operators",
        ),
        ([QAT, "model=tiny-moe"], "dense models like Llama, not those of model=tiny-moe"),
        ([FUSED, "engine=megatron"], "engine=megatron always does it: leave it out"),
        ([FUSED, "engine=script", "engine.options.command='-m train'"], "not those of engine=script: set engine=torch"),
        ([FUSED, "model=deepseek-v3"], "of models like Llama, not those of model=deepseek-v3"),
        ([FUSED, "method=QL", "task=finetune", "data=synthetic"], "L and QL add to each matrix"),
        ([FUSED, "method=P", "task=finetune", "data=synthetic"], "Q and P train none: leave it out"),
        ([FUSED, "method=Q"], "Q and P train none: leave it out"),
        ([FUSED, "engine=torch", "parallelism.tp=2"], "parallelism.tp cuts each matrix by itself"),
        ([FUSED, "engine=torch", "optimizer=muon"], "optimizer=muon updates a matrix as a whole"),
        ([FUSED, "optimizer=adafactor"], "optimizer=adafactor updates a matrix as a whole"),
        ([FUSED, "hardware=a800", LIGER], "Liger's kernels take gate and up apart"),
        ([CUDNN, "method=F"], "it is for GPUs"),
        ([CUDNN, "hardware=h100"], "add F to the method"),
        ([CUDNN, "hardware=h100", "method=F", "engine=megatron"], "not those of engine=megatron"),
        (["kernels.flash=fa2", "method=F"], "kernels.flash=fa2: it is for GPUs"),
        (["precision=tf32"], "precision.tf32=true: only GPUs multiply in TF32"),
        (["precision=tf32", "hardware=v100"], "hardware=v100 has no TF32"),
        (["precision=tf32", "hardware=mi300x"], "hardware=mi300x has no TF32"),
        (["precision=bf16_mixed", "precision.tf32=true", "hardware=h100"], "parameters are bf16"),
        ([FP16], "precision=fp16 without Z: DeepSpeed (0.19.8) divides gradients there by a factor"),
        ([FP16, "method=Z1", "precision.master=fp16"], "small updates vanish in it: set precision.master=fp32"),
        ([FP16, "engine=torch", "optimizer=lomo"], "without a copy in fp32: set precision=bf16_pure or precision=fp32"),
        ([FP16, *ONE_RANK, ADDED], "has not been tried with steps that are skipped: leave it out"),
        ([FP16, "engine=torch", CHUNKED], "kernels.chunked_loss makes gradients before the loss is scaled"),
        ([FP16, "engine=torch", LIGER, "hardware=a800"], "kernels.liger makes gradients before the loss is scaled"),
        ([FP16, "engine=torch", "precision.linears=fp8"], "precision.linears has not been tried with it"),
        ([FP16, "engine=megatron", "model=tiny-moe"], "would scale by another factor than the loss has"),
        ([FP16, "engine=torch", "method=F", "hardware=v100"], "run from Ampere on, not on hardware=v100"),
        (
            [FP16, "engine=script", "engine.options.command='-m package.train'"],
            "engine=script trains parameters in fp32 and bf16 only",
        ),
        ([FP8], "precision.linears=fp8: engine=deepspeed multiplies in precision.parameters alone: set engine=torch"),
        (
            [FP8, "engine=megatron"],
            "engine=megatron needs transformer_engine, whose layers llmexp plans and does not run: set engine=torch, "
            "engine=script engine.options.preset=megatron_lm precision=bf16_mixed for a program that has them, "
            "precision=bf16_mixed or bf16_pure",
        ),
        (
            [FP8, *MEGATRON_LM],
            "engine=script does not change its program, whose own words can ask for fp8: set engine=torch, "
            "precision=bf16_mixed or bf16_pure",
        ),
        (
            [FP8, "engine=torch", "precision.scaling=delayed"],
            "precision.scaling=delayed is TransformerEngine's: choices are tensorwise, rowwise, rowwise_with_gw_hp, "
            "mxfp8",
        ),
        (
            [FP8, "engine=script", "engine.options.command='-m package.train'"],
            "set engine=torch",
        ),
        ([FP8, "engine=torch", "method=L", "task=finetune"], "leave L, QL, P and Q out"),
        ([FP8, "engine=torch", "method=Q"], "leave L, QL, P and Q out"),
        (
            [FP8, "engine=torch", "parallelism.pp=2", "batch.accumulation=2", "parallelism.schedule=zero_bubble"],
            "zero_bubble splits backward passes",
        ),
        ([FP8, "engine=torch", "model=tiny-moe"], "dense models like Llama, not those of model=tiny-moe"),
        ([FP8, MX, "engine=torch"], "32 elements share a scale, and 32 does not divide gate_proj, 128 x 344 of model"),
        ([FP8, MX, *WIDE, "data.seq_len=350"], "32 does not divide 350 positions: set data.seq_len=320"),
        ([FP8, MX, *WIDE, "precision.parameters=fp32", "precision.gradients=fp32"], "its products are in bf16"),
        ([FP8, "engine=torch", "hardware=h100", "model=tiny"], "sides 16 divides, and gate_proj, 128 x 344 of model"),
        (
            [FP8, *WIDE, "hardware=h100", "parallelism.tp=4", "model.num_kv_heads=4"],
            "sides 16 divides, and gate_proj, 128 x 88 with parallelism.tp=4, of model=tiny is another",
        ),
        (["optimizer=lomo", "engine=torch", "precision=fp32", CLIPPED], "each gradient in backward"),
        (["engine=script", "engine.options.command='-m train'", CLIPPED], "engine=script sets neither"),
        (
            ["engine=script", "engine.options.command='-m train'", "optimizer.warmup_steps=1"],
            "optimizer.warmup_steps=1: engine=script",
        ),
        ([CUDNN, "hardware=h100", "method=F", "parallelism.cp=2"], "set parallelism.cp=1"),
        (
            [CUDNN, "hardware=h100", "method=F", "task=finetune", "data=instructions", "data.pack=true"],
            "set data.pack=false",
        ),
    ],
)
def test_the_reason_says_what_would_do(words: list[str], reason: str) -> None:
    assert reason in str(plan("hardware=cpu", *words).skip)


def test_the_program_that_megatron_names_for_fp8_is_planned() -> None:
    (named,) = re.findall(r"engine=script [^,]*?(?= for)", str(plan("hardware=cpu", FP8, "engine=megatron").skip))
    assert plan("hardware=cpu", FP8, *named.split(), MEGATRON_LM[-1]).skip is None


@pytest.mark.parametrize("words", [["method=F+R+C"], ["method=Z1"], [OFFLOAD], ["precision=bf16_mixed"]])
def test_what_goes_with_fused_accumulation_is_planned(words: list[str]) -> None:
    assert plan("hardware=cpu", ADDED, *ONE_RANK, *words).skip is None


class StatesNothing(DeepSpeedEngine):
    name = "others"
    builds_transformers = grows_sequences = False


@pytest.mark.parametrize(
    ("limit", "words", "reason"),
    [
        (
            flash_limit,
            [CUDNN, "hardware=h100", "method=F"],
            "kernels.flash=cudnn: it changes models of transformers, not",
        ),
        (liger_limit, [LIGER, "hardware=h100"], "kernels.liger=true: it changes models of transformers, not those of"),
        (
            schedule_limit,
            ["data=text", "data.seq_len=64", "data.seq_len_schedule=[32,64]"],
            "engine=others takes sequences",
        ),
    ],
)
def test_an_engine_that_states_nothing_is_refused(limit: Limit, words: list[str], reason: str) -> None:
    made = plan("hardware=cpu", *words)
    assert limit(made.config, get_engine("pretrain", "deepspeed"), made.techniques, made.dims) is None
    assert reason in str(limit(made.config, StatesNothing(), made.techniques, made.dims))


@pytest.mark.parametrize(
    ("hardware", "emulated"), [("cpu", True), ("a100", True), ("l40s", False), ("h100", False), ("mi250x", True)]
)
def test_hardware_without_fp8_emulates_it(hardware: str, emulated: bool) -> None:
    made = plan(FP8, "engine=torch", "model=7b", f"hardware={hardware}", "data.seq_len=350")
    assert made.skip is None
    assert made.emulates == emulated
    assert made.engine_config["float8"] == {"recipe": "tensorwise", "emulate": emulated, "pad_inner_dim": True}
    assert (made.predicted is None) == (made.peak_flops_per_s is None) == emulated


@pytest.mark.parametrize(
    ("hardware", "emulated"), [("cpu", True), ("h100", True), ("b200", False), ("rtx5090", True), ("mi355x", True)]
)
def test_hardware_without_scales_of_blocks_emulates_them(hardware: str, emulated: bool) -> None:
    made = plan(FP8, MX, "engine=torch", "model=7b", f"hardware={hardware}", "data.seq_len=2048")
    assert made.skip is None
    assert made.emulates == emulated
    assert made.engine_config["float8"] == {"recipe": "mxfp8", "emulate": emulated}
    tensorwise = plan(FP8, "engine=torch", "model=7b", f"hardware={hardware}", "data.seq_len=2048")
    assert made.flops == tensorwise.flops


def test_fp8_states_take_the_bytes_of_those_in_bf16() -> None:
    words = ("engine=torch", "model=7b", "hardware=h100")
    for low, half in (("fp8", "bf16_mixed"), ("fp8_pure", "bf16_pure")):
        assert plan(*words, f"precision={low}").memory == plan(*words, f"precision={half}").memory


def test_tf32_has_a_peak_of_its_own() -> None:
    peaks = {
        name: RunConstants.of(plan("hardware=h100", f"precision={name}")).peak_flops_per_s for name in ("fp32", "tf32")
    }
    assert peaks == {"fp32": 66.9e12, "tf32": 494.7e12}
    assert plan("hardware=h100", "precision=tf32").skip is None


def test_liger_is_asked_for_before_a_run_on_a_gpu_starts() -> None:
    made = plan("hardware=a800", LIGER)
    assert made.skip is None
    assert "liger_kernel" in get_engine("pretrain", "deepspeed").needed_modules(made.config)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [("LlamaForCausalLM", None), ("MistralForCausalLM", "architecture llama, qwen3, mixtral here, not model=")],
)
def test_liger_takes_folders_of_the_architectures_of_presets(
    architecture: str, reason: str | None, tmp_path: Path
) -> None:
    family = architecture.removesuffix("ForCausalLM").lower()
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"architectures": [architecture], "model_type": family}))
    skip = plan("hardware=a800", LIGER, "model=hf", f"model.path={tmp_path}").skip
    assert (reason or "None") in str(skip)


@pytest.mark.parametrize("key", [LIGER, CHUNKED, "memory.keep=attention"])
def test_a_hubs_name_says_that_its_architecture_is_not_known_here(key: str) -> None:
    made = plan("hardware=a800", key, "method=F+R", "model=hf", "model.path=organization/name")
    assert "config.json of model.path=organization/name is not here: set a folder" in str(made.skip)


@pytest.mark.parametrize(
    "words", ["engine=torch", "engine=torch method=Z3", "engine=deepspeed method=Z2", "engine=megatron"]
)
def test_fp16_takes_the_memory_of_bf16_and_has_a_peak_of_its_own(words: str) -> None:
    fp16, bf16 = (plan("hardware=a800", f"precision={name}", *words.split()) for name in ("fp16", "bf16_mixed"))
    assert fp16.skip is None
    assert fp16.memory == bf16.memory
    assert RunConstants.of(fp16).peak_flops_per_s == 312e12
    assert RunConstants.of(plan("hardware=v100", FP16, *words.split())).peak_flops_per_s == 125e12
