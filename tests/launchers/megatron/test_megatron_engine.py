"""What engine=megatron takes and what it leaves out, with the reason; decided without the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from planning import make_plan

from llmexp.launch.compilers import uncompilable
from llmexp.launchers.megatron.engine import FUSIONS
from llmexp.registry import get_engine
from llmexp.training.plan.training_plan import TrainingPlan

OFF = f"+engine.options.transformer={{{','.join(f'{name}:false' for name in FUSIONS)}}}"


@pytest.fixture
def plan() -> Callable[..., TrainingPlan]:
    def of(*words: str) -> TrainingPlan:
        return make_plan("engine=megatron", "model=tiny", "hardware=a800", *words)

    return of


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["method=Z2"], "Z2: megatron-core's distributed optimizer partitions optimizer states only, which is Z1"),
        (["method=Z3+O"], "Z3: "),
        (["method=C"], "C compiles transformers' decoder layers"),
        (["method=Q"], "Q replaces linear layers"),
        (["parallelism.pp=2", "parallelism.schedule=gpipe"], "its pipeline schedules are 1f1b, interleaved, not gpipe"),
        (
            ["parallelism.pp=2", "parallelism.virtual_stages=2", "parallelism.schedule=zbv"],
            "its pipeline schedules are 1f1b, interleaved, not zbv",
        ),
        (["model=tiny-moe", "parallelism.tp=2"], "experts with parallelism.tp=2 need parallelism.sequence=true"),
        (
            ["model=tiny-moe", "parallelism.tp=2", "parallelism.etp=1", "parallelism.sequence=true"],
            "parallelism.etp=1 sums no gradients over tp unless experts are shared out: set parallelism.ep",
        ),
        (
            ["model=tiny-moe", "+engine.options.transformer.moe_grouped_gemm=true"],
            "moe_grouped_gemm needs TransformerEngine's",
        ),
        (["model=hf", "model.path=org/name"], "it builds architecture llama, qwen3, mixtral, not hf"),
        (["model.target=package.Model"], "it builds its own model, not model.target"),
        (["optimizer=deepspeed_adamw"], "its optimizer is AdamW"),
        (
            ["precision=bf16_mixed", "precision.moments=bf16"],
            "parameters, gradients, master copy and moments in bf16, bf16, fp32, bf16",
        ),
        (["precision=bf16_pure", "method=Z1"], "Z1: its distributed optimizer keeps an fp32 master copy"),
        (["method=F", "precision=fp32"], "F: the flash kernels of CUDA take bf16"),
    ],
)
def test_what_it_lacks_is_a_skip_with_the_reason(
    words: list[str], reason: str, plan: Callable[..., TrainingPlan]
) -> None:
    assert reason in str(plan(*words).skip)


@pytest.mark.parametrize(
    "words",
    [
        ["method=F+R+Z1"],
        ["precision=bf16_pure", "method=F+R"],
        ["precision=fp32"],
        ["model=qwen3-8b"],
        ["model=mixtral", "parallelism.ep=8"],
    ],
)
def test_what_it_has_is_not_skipped(words: list[str], plan: Callable[..., TrainingPlan]) -> None:
    assert plan(*words).skip is None


def test_an_interleaved_pipeline_sends_one_by_one_and_keeps_what_it_sends_on_a_host(
    plan: Callable[..., TrainingPlan],
) -> None:
    pipeline = ("parallelism.pp=2", "parallelism.dp=1", "batch.accumulation=2")
    for words in (pipeline, (*pipeline, "parallelism.virtual_stages=2")):
        for hardware, freed in (("a800", True), ("cpu", False)):
            transformer = plan(*words, f"hardware={hardware}").engine_config["transformer"]
            assert transformer["deallocate_pipeline_outputs"] is freed
            assert transformer["batch_p2p_comm"] is (transformer["virtual_pipeline_model_parallel_size"] is None)
            assert transformer["overlap_p2p_comm"] is not transformer["batch_p2p_comm"]


@pytest.mark.parametrize(
    "words",
    [
        (
            "parallelism.virtual_stages=2",
            "+engine.options.transformer.batch_p2p_comm=true",
            "+engine.options.transformer.overlap_p2p_comm=false",
        ),
        ("+engine.options.transformer.deallocate_pipeline_outputs=true",),
    ],
)
def test_options_that_would_train_wrongly_without_a_word_are_skipped(
    words: tuple[str, ...], plan: Callable[..., TrainingPlan]
) -> None:
    assert "trains wrongly" in str(
        plan("hardware=cpu", "parallelism.pp=2", "parallelism.dp=1", "batch.accumulation=2", *words).skip
    )


def test_gloo_gathers_tokens_where_tensor_parallel_ranks_have_different_numbers_of_them(
    plan: Callable[..., TrainingPlan],
) -> None:
    words = ("model=tiny-moe", "parallelism.tp=2", "parallelism.sequence=true", "parallelism.dp=2", "parallelism.ep=2")
    chosen = {
        device: plan(*words, f"hardware={device}").engine_config["transformer"]["moe_token_dispatcher_type"]
        for device in ("a800", "cpu")
    }
    assert chosen == {"a800": "alltoall", "cpu": "allgather"}
    asked = "+engine.options.transformer.moe_token_dispatcher_type=alltoall"
    assert "moe_token_dispatcher_type=allgather only" in str(plan(*words, "hardware=cpu", asked).skip)
    assert plan(*words, "hardware=a800", asked).skip is None


def fusions(made: TrainingPlan) -> set[str]:
    return {name for name, on in made.engine_config["transformer"].items() if name.endswith("_fusion") and on}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["precision=bf16_mixed"], {*FUSIONS}),
        (["precision=fp32"], {"bias_activation_fusion", "bias_dropout_fusion"}),
        (["precision=bf16_mixed", "model=tiny-moe"], {"bias_dropout_fusion", "cross_entropy_loss_fusion"}),
        (["precision=bf16_mixed", "hardware=cpu"], set()),
        (["precision=bf16_mixed", OFF], set()),
    ],
)
def test_gpus_compile_megatrons_fusions_where_these_compute_the_same(
    words: list[str], expected: set[str], plan: Callable[..., TrainingPlan]
) -> None:
    made = plan(*words)
    assert fusions(made) == expected
    assert made.compiles is bool(expected)
    assert ("triton" in get_engine("pretrain", "megatron").needed_modules(made.config)) is bool(expected)


def test_ranks_that_cannot_compile_the_fusions_are_refused_with_the_words_that_turn_them_off(
    plan: Callable[..., TrainingPlan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    said = str(uncompilable(plan()))
    assert said.startswith(
        "engine=megatron: torch.compile compiles its fusions in the ranks, and this machine has no C"
    )
    assert said.endswith(f"without them: '{OFF}'")
    assert uncompilable(plan(OFF)) is None


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        (["hardware=h100", "parallelism.tp=2"], "1"),
        (["hardware=h100", "parallelism.cp=2"], "1"),
        (["hardware=h100"], None),
        (["hardware=b200", "parallelism.tp=2"], None),
        (["hardware=cpu", "parallelism.tp=2", "parallelism.dp=1"], None),
        (["hardware=h100", "parallelism.tp=2", "+hardware.environment.CUDA_DEVICE_MAX_CONNECTIONS='8'"], "8"),
    ],
)
def test_one_queue_orders_the_kernels_where_tp_or_cp_rely_on_it(
    words: list[str], variable: str | None, plan: Callable[..., TrainingPlan]
) -> None:
    assert plan(*words).command.env.get("CUDA_DEVICE_MAX_CONNECTIONS") == variable


def test_planning_imports_neither_megatron_nor_torch() -> None:
    code = (
        "import sys; from llmexp.registry import get_engine; get_engine('pretrain', 'megatron'); "
        "print({'torch', 'megatron'} & {*sys.modules})"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "set()"
    )
