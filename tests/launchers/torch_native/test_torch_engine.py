from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmexp.inputs.shape import shape_of
from llmexp.training.plan.training_plan import TrainingPlan

# Of all parameters: embedding, last norm and head, which FSDP2 keeps whole until backward.
OUTSIDE_LAYERS = (2 * 512 * 128 + 128) / 857_216
PRECISION = {"name": "mine", "parameters": "bf16", "gradients": "bf16", "master": "fp32", "moments": "fp32"}


@pytest.fixture
def torch_plan(tiny_plan: Callable[..., TrainingPlan]) -> Callable[..., TrainingPlan]:
    return lambda method="Naive", **changes: tiny_plan(method, **{"engine__name": "torch"} | changes)


@pytest.mark.parametrize("method", ["Naive", "F", "R", "C", "Z1", "Z2", "Z3", "Z2+O", "Z3+O", "Q", "F+R+C+Z3"])
@pytest.mark.parametrize("precision", ["bf16_mixed", "bf16_pure", "fp32"])
def test_nothing_that_users_ask_for_is_skipped(
    torch_plan: Callable[..., TrainingPlan], method: str, precision: str
) -> None:
    dtypes = {
        "bf16_mixed": {},
        "bf16_pure": {"master": "bf16", "moments": "bf16"},
        "fp32": {"parameters": "fp32", "gradients": "fp32"},
    }
    assert torch_plan(method, precision={**PRECISION, "name": precision, **dtypes[precision]}).skip is None


@pytest.mark.parametrize(
    ("method", "changes", "reason"),
    [
        (
            "Z3",
            {"optimizer__implementation": "deepspeed", "optimizer__name": "mine"},
            "optimizer=mine is DeepSpeed's: set optimizer=adamw",
        ),
        ("Z3", {"optimizer__implementation": "deepspeed_with_offload"}, None),
        ("Z2", {"parallelism__shard": 1}, None),
        ("Z1", {"parallelism__shard": 1}, "parallelism.shard=1 is for Z2 and Z3: add one to the method"),
        ("Z3+O", {"parallelism__shard": 1}, "parallelism.shard=1 has not been tried with O: leave one of them out"),
        (
            "Z3+O",
            {"optimizer__implementation": "deepspeed_with_offload"},
            "optimizer=adamw is DeepSpeed's: set optimizer=adamw",
        ),
        (
            "Z3",
            {"precision__moments": "bf16"},
            "torch's optimizers keep moments in the dtype that they update: precision.moments=bf16",
        ),
        (
            "Naive",
            {"precision": PRECISION | {"gradients": "fp32"}},
            "torch keeps gradients in the parameters' dtype, bf16: set precision.gradients to it, or take Z2 or Z3",
        ),
        ("Z3", {"precision": PRECISION | {"gradients": "fp32"}}, None),
        (
            "F",
            {"precision": PRECISION | {"parameters": "fp32", "gradients": "fp32"}, "hardware__name": "a800"},
            "F: the flash kernels of CUDA take bf16",
        ),
        (
            "Z3",
            {"precision": PRECISION | {"parameters": "fp32", "master": "bf16", "moments": "bf16"}},
            "precision.master=bf16 is narrower than precision.parameters=fp32",
        ),
    ],
)
def test_what_it_cannot_do_is_a_skip_with_the_reason(
    torch_plan: Callable[..., TrainingPlan], method: str, changes: dict[str, Any], reason: str | None
) -> None:
    skip = torch_plan(method, **changes).skip
    assert str(skip).startswith(str(reason))


STAGES = {"parallelism": {"dp": 1, "tp": 2, "pp": 2}, "batch": {"micro": 1, "accumulation": 2}}
TENSOR = "engine=torch with parallelism.tp=2: "
TUNED = {"task__name": "finetune"}
FP8 = PRECISION | {"linears": "fp8", "scaling": "tensorwise"}


@pytest.mark.parametrize(
    ("method", "changes", "reason"),
    [
        ("F+R+Z3", {}, None),
        ("RS", {"parallelism__dp": 2, "parallelism__sequence": True}, None),
        ("Z1", {}, None),
        ("C+Z3+O", {}, "it goes with C, F, R, RS, Z1, Z2, Z3, L, not with O"),
        ("C+R", {}, None),
        ("F+R", STAGES, None),
        ("C+F+R", STAGES, None),
        ("C+F", {}, None),
        ("Z1", STAGES, None),
        ("Naive", {"model__architecture": "qwen3"}, None),
        ("L+Z3", TUNED, None),
        ("QL", TUNED, "it goes with C, F, R, RS, Z1, Z2, Z3, L, not with QL"),
        (
            "L",
            TUNED | {"adapter": {"dropout": 0.1}},
            "its ranks would drop different inputs by adapter.dropout=0.1: set it",
        ),
        ("Naive", {"model__target": "package.Model"}, "it takes models of architecture llama, mistral, qwen3, not"),
        ("Naive", {"model__tie_embeddings": True}, None),
        ("C+F+R+Z3", {"precision": FP8}, None),
        ("Naive", {"precision": FP8 | {"scaling": "mxfp8"}}, "it has not been tried with precision.scaling=mxfp8"),
        (
            "Naive",
            {"memory": {"activation_offload": True}},
            "it has not been tried with memory.activation_offload=true",
        ),
    ],
)
def test_what_does_not_go_with_cut_matrices_is_a_skip(
    torch_plan: Callable[..., TrainingPlan], method: str, changes: dict[str, Any], reason: str | None
) -> None:
    skip = torch_plan(method, **{"parallelism__tp": 2} | changes).skip
    assert str(skip).startswith(TENSOR + reason if reason else "None")


SEQUENCES = "engine=torch with parallelism.cp=2: "
KIND = "parallelism__cp_kind"


@pytest.mark.parametrize(
    ("method", "changes", "reason"),
    [
        ("F+R+Z3+O", {}, None),
        ("RS+Z1", {KIND: "ulysses"}, None),
        ("RS", {}, SEQUENCES + "RS has nothing to save, as a ring keeps no scores: leave RS out, or set"),
        ("Q", {}, SEQUENCES + "it goes with F, R, RS, Z1, Z2, Z3, O, L, not with Q"),
        ("C", {}, "C compiles decoder layers whole, and with parallelism.cp the ranks communicate inside them"),
        ("F+R", STAGES | {"parallelism": {"dp": 1, "cp": 2, "tp": 2, "pp": 2}}, None),
        (
            "Z3",
            STAGES | {"parallelism": {"dp": 1, "cp": 2, "pp": 2}},
            None,
        ),
        ("Z3", {"parallelism__shard": 1}, None),
        (
            "Naive",
            {"precision": FP8, "parallelism": {"dp": 1, "cp": 2, "tp": 2}},
            SEQUENCES + "it has not been tried with precision.linears=fp8: leave that out",
        ),
        ("Naive", {"model__target": "package.Model"}, SEQUENCES + "it takes models of architecture llama, qwen3"),
        (
            "Naive",
            {"memory": {"activation_offload": True}},
            SEQUENCES + "it has not been tried with memory.activation_offload=true: leave that out",
        ),
    ],
)
def test_what_does_not_go_with_shared_sequences_is_a_skip(
    torch_plan: Callable[..., TrainingPlan], method: str, changes: dict[str, Any], reason: str | None
) -> None:
    skip = torch_plan(method, **{"parallelism__cp": 2, "data__seq_len": 352} | changes).skip
    assert str(skip).startswith(str(reason))


PIPELINE = {"parallelism__pp": 2, "batch": {"micro": 1, "accumulation": 4}}
LOOPED = {"parallelism": {"dp": 1, "pp": 2, "virtual_stages": 2}, "batch": {"micro": 1, "accumulation": 4}}


@pytest.mark.parametrize(
    ("method", "changes", "reason"),
    [
        ("F+R+C+Z1", PIPELINE, None),
        ("Q", PIPELINE, None),
        ("F+R+C+Z3", PIPELINE, None),
        ("RS+Z2", LOOPED, None),
        ("Z3+O", PIPELINE, "O: pipeline stages have not been tried with state on the host: leave O out"),
        *(
            ("Z3", LOOPED | {"parallelism": LOOPED["parallelism"] | {"schedule": name}}, f"Z3: {name} splits backward")
            for name in ("zero_bubble", "zbv", "dualpipev")
        ),
        ("Naive", PIPELINE | {"model__tie_embeddings": True}, None),
        (
            "Naive",
            PIPELINE | {"model__target": "package.Model"},
            "engine=torch with parallelism.pp=2: it takes models of architecture llama, mistral, qwen3, mixtral",
        ),
        ("F+R", LOOPED, None),
        ("R", LOOPED | {"parallelism": LOOPED["parallelism"] | {"schedule": "zbv"}}, "R: zbv splits backward passes"),
        (
            "C",
            LOOPED | {"parallelism": LOOPED["parallelism"] | {"schedule": "dualpipev"}},
            "C: dualpipev splits backward passes",
        ),
        ("F", LOOPED | {"parallelism": LOOPED["parallelism"] | {"schedule": "zero_bubble"}}, None),
        ("R", LOOPED | {"precision": FP8}, None),
        (
            "F",
            LOOPED | {"precision": FP8, "parallelism": LOOPED["parallelism"] | {"schedule": "zero_bubble"}},
            "precision.linears=fp8: zero_bubble splits backward passes, and torchao would multiply for both gradients",
        ),
    ],
)
def test_what_does_not_go_with_a_pipeline_is_a_skip(
    torch_plan: Callable[..., TrainingPlan], method: str, changes: dict[str, Any], reason: str | None
) -> None:
    skip = torch_plan(method, **changes).skip
    assert str(skip).startswith(str(reason))


def test_a_pipeline_takes_its_schedule_in_the_place_of_ddp(torch_plan: Callable[..., TrainingPlan]) -> None:
    native = torch_plan("Z1", **LOOPED | {"parallelism": LOOPED["parallelism"] | {"dp": 2}}).engine_config
    assert native == {
        "schedule": {"schedule_name": "Interleaved1F1B"},
        "zero_redundancy_optimizer": {"parameters_as_bucket_view": True},
    }


@pytest.mark.parametrize(
    ("method", "ranks", "wrappers"),
    [
        ("Naive", 1, set()),
        ("Naive", 2, {"distributed_data_parallel"}),
        ("Z1", 2, {"distributed_data_parallel", "zero_redundancy_optimizer"}),
        ("Z2", 1, {"fully_shard", "mixed_precision"}),
        ("Z3+O", 2, {"fully_shard", "mixed_precision", "cpu_offload"}),
    ],
)
def test_the_method_chooses_the_wrapper(
    torch_plan: Callable[..., TrainingPlan], method: str, ranks: int, wrappers: set[str]
) -> None:
    native = torch_plan(method, parallelism__dp=ranks).engine_config
    assert set(native) == wrappers
    assert "fully_shard" not in wrappers or native["fully_shard"]["reshard_after_forward"] == ("Z3" in method)


def test_options_are_merged_over_the_wrappers_arguments(torch_plan: Callable[..., TrainingPlan]) -> None:
    options = {"distributed_data_parallel": {"bucket_cap_mb": 100}}
    native = torch_plan(parallelism__dp=2, engine__options=options).engine_config["distributed_data_parallel"]
    assert native == {"gradient_as_bucket_view": True, "broadcast_buffers": False, "bucket_cap_mb": 100}


@pytest.mark.parametrize(
    ("method", "precision", "device", "host"),
    [
        ("Naive", {}, 20, 0),
        ("Z1", {}, 4 + 16 / 8, 0),
        ("Z2", {}, 2 + 12 / 8, 0),
        ("Z3", {}, 16 / 8, 0),
        ("Z2+O", {}, 2, 16 / 8),
        ("Naive", {"master": "bf16", "moments": "bf16"}, 8, 0),
        ("Z2", {"master": "bf16", "moments": "bf16"}, 2 + 6 / 8, 0),
        ("Z3", {"master": "bf16", "moments": "bf16"}, 6 / 8 + 2 * OUTSIDE_LAYERS, 0),
    ],
)
def test_sure_bytes_a_parameter(
    torch_plan: Callable[..., TrainingPlan], method: str, precision: dict[str, str], device: float, host: float
) -> None:
    made = torch_plan(method, parallelism__dp=8, precision=PRECISION | precision)
    assert made.memory is not None
    assert (made.memory.device, made.memory.host) == pytest.approx(
        (device * made.parameters, host * made.parameters), rel=1e-3
    )


def test_compiled_cut_layers_are_computed_again_to_their_end(torch_plan: Callable[..., TrainingPlan]) -> None:
    once, again = (torch_plan(method, parallelism__tp=2) for method in ("C", "C+R"))
    shape = shape_of(once.config.model)
    assert shape
    assert once.flops
    assert once.flops.computed
    assert again.flops
    assert again.flops.computed
    assert again.flops.computed.per_position - once.flops.computed.per_position == 2 * shape.linear_parameters
