"""What each atom does in each engine, observed on two real ranks: operators, layer calls, bytes of state, loss curve.

There is one loss curve for one mathematics.

It is that of one process alone, on the same sequences and weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from math import sqrt
from typing import Any

import pytest
from marks import slow, tier
from planning import Measurement, make_plans, table03_methods

from llmexp.method import ATOMS, Method
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

Runs = Callable[[str], Measurement]
# Those that train a model of transformers.
ENGINES = ["deepspeed", "torch"]
METHODS = [*(str(Method.parse(name)) for name in table03_methods()), "Z1", "RS"]
# Each way in which C meets another atom; compiling is what takes long here.
COMPILED = ["C", "F+R+C+Z3", "C+Q"]
STILL = "C, lr 0"
# Each atom alone, and with what it meets in both engines; the others are run by make test-sweeps.
SHORT = {"Naive", "F", "R", "RS", "Q", "R+Q", "Z1", "Z2", "Z3", "Z2+O", "Z3+O", "F+R+Z3", "F+R+Z3+O", "C", "F+R+C+Z3"}
# Each atom alone, and most of them at once.
QUICK = {"Naive", "F", "R", "Q", "Z1", "Z2", "Z3", "F+R+Z3+O"}
EVERY = [pytest.param(name, marks=tier(name, QUICK, SHORT)) for name in METHODS]
EVERY_COMPILED = [
    *(slow(engine, method) for method in ("C", "F+R+C+Z3") for engine in ENGINES),
    *(pytest.param(engine, "C+Q", marks=pytest.mark.sweep) for engine in ENGINES),
]
each_compiled = pytest.mark.parametrize(("engine", "method"), EVERY_COMPILED)
SAME_MATHEMATICS = [each for each, name in zip(EVERY, METHODS, strict=True) if "Q" not in name]
LAYERS = 2
# Of losses near 6, over 4 steps: against one process, in bf16_mixed against Naive and against fp32
# (measured: 1e-6, 4e-4 and 1.6e-2).
FP32_TOLERANCE = 1e-5
BF16_TOLERANCE = 2e-3
BF16_TO_FP32_TOLERANCE = 3e-2
BF16_METHODS = ["Naive", "F", "R", "Z1", "Z2", "Z2+O", "Z3", "Z3+O", "F+R+Z3+O"]
BF16_QUICK = {"Naive", "Z1", "Z2", "Z3", "Z3+O"}
EVERY_BF16 = [name if name in BF16_QUICK else slow(name) for name in BF16_METHODS]
ACCUMULATED = ["Naive", "Z1", "Z2", "Z3"]


def plan(engine: str, method: str, precision: str, *overrides: str) -> TrainingPlan:
    words = (
        "hardware=cpu",
        f"model.num_layers={LAYERS}",
        "parallelism.dp=2",
        "data.seq_len=64",
        f"engine={engine}",
        f"precision={precision}",
    )
    return make_plans((*METHODS, *COMPILED), *words, *overrides)[method]


@pytest.fixture(scope="module")
def fp32(observe: Callable[..., Measurement], asked: set[str]) -> Runs:
    def run(engine: str) -> Measurement:
        plans = {name: plan(engine, name, "fp32") for name in METHODS if name in asked | QUICK}
        frozen = {f"{name}, lr 0": plan(engine, name, "fp32", "optimizer.lr=0.0") for name in ("Q", "Z3")}
        accumulated = {f"{name}, 2 passes": plan(engine, name, "fp32", "batch.accumulation=2") for name in ACCUMULATED}
        return observe(plans | frozen | accumulated)

    return cache(run)


@pytest.fixture(scope="module")
def compiled(observe: Callable[..., Measurement], asked: set[str]) -> Runs:
    def run(engine: str) -> Measurement:
        plans = {name: plan(engine, name, "fp32") for name in COMPILED if name in asked}
        return observe(plans | {STILL: plan(engine, "C", "fp32", "optimizer.lr=0.0")} if STILL in asked else plans)

    return cache(run)


@pytest.fixture(scope="module")
def bf16(observe: Callable[..., Measurement], asked: set[str]) -> Runs:
    wanted = [name for name in BF16_METHODS if name in asked | BF16_QUICK]
    return cache(lambda engine: observe({name: plan(engine, name, "bf16_mixed") for name in wanted}))


@pytest.fixture(scope="module")
def alone(observe: Callable[..., Measurement]) -> Runs:
    """One process; the sequences of both ranks, and of both their passes, in one batch."""

    def run(engine: str) -> Measurement:
        batches = {
            f"{precision}, {micro}": (precision, micro)
            for precision, micro in (("fp32", 2), ("fp32", 4), ("bf16_pure", 2))
        }
        words = ("parallelism.dp=1",)
        return observe(
            {
                name: plan(engine, "Naive", precision, *words, f"batch.micro={micro}")
                for name, (precision, micro) in batches.items()
            },
            ranks=1,
        )

    return cache(run)


def state_bytes(observed: Measurement, method: str, kind: str, rank: int = 0) -> int:
    size = observed[method][rank]["state"][kind]
    return int(size["device"] + size["host"])


def test_every_method_of_table_03_is_here() -> None:
    assert len(METHODS) == len(set(METHODS)) == 24


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", SAME_MATHEMATICS)
def test_fp32_losses_of_every_engine_follow_the_curve_of_one_process(
    fp32: Runs, alone: Runs, engine: str, method: str
) -> None:
    one, losses = alone("torch")["fp32, 2"][0]["losses"], fp32(engine)[method][0]["losses"]
    assert len(losses) == 4
    assert one[-1] < one[0] - 0.2
    assert losses == pytest.approx(one, abs=FP32_TOLERANCE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ACCUMULATED)
def test_accumulated_passes_follow_the_curve_of_one_large_batch(
    fp32: Runs, alone: Runs, engine: str, method: str
) -> None:
    assert fp32(engine)[f"{method}, 2 passes"][0]["losses"] == pytest.approx(
        alone("torch")["fp32, 4"][0]["losses"], abs=FP32_TOLERANCE
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", EVERY_BF16)
def test_bf16_losses_follow_one_curve_near_that_of_fp32(fp32: Runs, bf16: Runs, engine: str, method: str) -> None:
    assert bf16(engine)[method][0]["losses"] == pytest.approx(
        bf16("deepspeed")["Naive"][0]["losses"], abs=BF16_TOLERANCE
    )
    assert bf16(engine)[method][0]["losses"] == pytest.approx(
        fp32(engine)["Naive"][0]["losses"], abs=BF16_TO_FP32_TOLERANCE
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", EVERY)
def test_f_runs_the_flash_kernel_and_nothing_else_does(fp32: Runs, engine: str, method: str) -> None:
    for rank in fp32(engine)[method]:
        flash = [name for name in rank["operators"] if "flash_attention" in name]
        assert bool(flash) == ("F" in method.split("+"))
        assert ("aten::_softmax" in rank["operators"]) != bool(flash)
        assert rank["attention_kernel"] == (
            "aten::_scaled_dot_product_flash_attention_for_cpu" if flash else "aten::_softmax"
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", EVERY)
def test_r_runs_every_layer_again_in_backward(fp32: Runs, engine: str, method: str) -> None:
    passes = 2 if "R" in method.split("+") else 1
    assert [rank["layer_calls"] for rank in fp32(engine)[method]] == [passes * LAYERS] * 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("method", "calls"), [("Naive", LAYERS), slow("RS", 2 * LAYERS), ("R", 2 * LAYERS)])
def test_rs_runs_the_attention_of_every_layer_again_in_backward_and_nothing_else_of_it(
    fp32: Runs, engine: str, method: str, calls: int
) -> None:
    for rank in fp32(engine)[method]:
        assert rank["operators"]["aten::_softmax"] == calls


# Bytes a parameter that each of two ranks holds of parameters, gradients and optimizer states. FSDP2 holds its half
# of the master copy as the parameters, and gradients in its dtype; all others copy gradients into it for the update,
# or with O before, and not all drop these then.
HELD = {
    ("deepspeed", "Naive"): (2, 2 + 4, 12),
    ("deepspeed", "Z1"): (2, 4 / 2, 12 / 2),
    ("deepspeed", "Z2"): (2, 4 / 2, 12 / 2),
    ("deepspeed", "Z3"): (2 / 2, 6 / 2, 12 / 2),
    ("deepspeed", "Z3+O"): (2 / 2, 6 / 2, 12 / 2),
    ("torch", "Naive"): (2, 2 + 4, 12),
    ("torch", "Z1"): (2, 2 + 4 / 2, 12 / 2),
    ("torch", "Z2"): (4 / 2, 4 / 2, 8 / 2),
    ("torch", "Z3"): (4 / 2, 4 / 2, 8 / 2),
    ("torch", "Z3+O"): (4 / 2, 4 / 2, 8 / 2),
}


@pytest.mark.parametrize(("engine", "method"), HELD)
def test_state_is_partitioned_over_both_ranks(bf16: Runs, engine: str, method: str) -> None:
    observed = bf16(engine)
    for kind, bytes_per_parameter in zip(("parameters", "gradients", "optimizer"), HELD[engine, method], strict=True):
        for rank in (0, 1):
            expected = bytes_per_parameter * observed[method][0]["parameters"]
            # A matrix on the border of two partitions may be one rank's as a whole.
            assert state_bytes(observed, method, kind, rank) == pytest.approx(expected, rel=0.1), kind


@pytest.mark.parametrize(
    ("engine", "method", "bytes_per_parameter"), [("torch", "Naive", 2), ("torch", "Z2", 2), ("deepspeed", "Z2", 2)]
)
def test_until_backward_whole_parameters_are_held_in_the_dtype_they_compute_in(
    bf16: Runs, engine: str, method: str, bytes_per_parameter: float
) -> None:
    observed = bf16(engine)[method][0]
    assert observed["parameter_bytes_after_forward"] == pytest.approx(
        bytes_per_parameter * observed["parameters"], rel=0.05
    )


def test_under_z3_only_what_belongs_to_no_layer_stays_gathered_until_backward(bf16: Runs) -> None:
    observed = bf16("torch")["Z3"][0]
    in_layers = plan("torch", "Z3", "bf16_mixed").parameters - 2 * 257 * 128 - 128
    expected = 4 / 2 * in_layers + 2 * (observed["parameters"] - in_layers)
    assert observed["parameter_bytes_after_forward"] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("method", [slow("Z2"), "Z3"])
def test_deepspeeds_o_moves_state_to_the_host_and_gradients_into_the_dtype_of_the_master_copy(
    bf16: Runs, method: str
) -> None:
    observed = bf16("deepspeed")
    without, offloaded = state_bytes(observed, method, "gradients"), state_bytes(observed, f"{method}+O", "gradients")
    assert offloaded == pytest.approx(without, rel=0.1), "without O there is as much in the update"
    assert on_host(observed, f"{method}+O") == {"optimizer", "gradients"} | (
        {"parameters"} if method == "Z3" else set()
    )
    assert on_host(observed, method) == set()


@pytest.mark.parametrize("method", [slow("Z2"), "Z3"])
def test_fsdps_o_moves_all_partitions_to_the_host(bf16: Runs, method: str) -> None:
    assert on_host(bf16("torch"), f"{method}+O") == {"parameters", "gradients", "optimizer"}
    assert on_host(bf16("torch"), method) == set()


def on_host(observed: Measurement, method: str) -> set[str]:
    """Kinds of state that lie there; none lies in both places, but gathered parameters are never there."""
    state = {kind: size for kind, size in observed[method][0]["state"].items() if not kind.endswith("gathered")}
    assert all(not size["host"] or not size["device"] for size in state.values())
    return {kind for kind, size in state.items() if size["host"]}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["Q", slow("R+Q")])
def test_q_trains_only_what_is_not_quantized(fp32: Runs, engine: str, method: str) -> None:
    observed = fp32(engine)[method][0]
    assert all("norm" in name or "embed" in name or "lm_head" in name for name in observed["trained_names"])
    assert any(name.endswith("input_layernorm.weight") for name in observed["trained_names"])
    frozen = observed["parameters"] - observed["trainable_parameters"]
    four_bit = state_bytes(fp32(engine), method, "parameters") - 4 * observed["trainable_parameters"]
    assert 0.5 * frozen < four_bit < 0.6 * frozen
    assert any("4bit" in name for name in observed["operators"])
    assert observed["losses"][-1] < observed["losses"][0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["Q", "Z3"])
def test_without_a_learning_rate_nothing_changes(fp32: Runs, engine: str, method: str) -> None:
    losses = fp32(engine)[f"{method}, lr 0"][0]["losses"]
    assert set(losses) == {fp32(engine)[method][0]["losses"][0]}
    assert {rank["largest_update"] for rank in fp32(engine)[f"{method}, lr 0"]} == {0}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", EVERY)
def test_the_first_update_is_seen_wherever_parameters_lie(fp32: Runs, engine: str, method: str) -> None:
    """AdamW's first one moves every element by lr, whatever its gradient."""
    lr = plan(engine, method, "fp32").config.optimizer.lr
    assert max(rank["largest_update"] for rank in fp32(engine)[method]) == pytest.approx(lr, rel=0.02)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", EVERY)
def test_the_gradient_of_the_first_step_is_that_of_one_process_whatever_a_rank_holds_of_it(
    fp32: Runs, alone: Runs, engine: str, method: str
) -> None:
    (one,) = (alone("torch")["fp32, 2"] if "Q" not in method.split("+") else fp32("torch")["Q"])[:1]
    for rank in fp32(engine)[method]:
        assert rank["gradient_norm"] == pytest.approx(sqrt(one["gradient_squares"]), rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", EVERY)
def test_predicted_memory_is_what_is_allocated(fp32: Runs, engine: str, method: str) -> None:
    predicted = plan(engine, method, "fp32").memory
    assert predicted is not None
    for kind in ("parameters", "optimizer"):
        expected = getattr(predicted, kind)
        assert state_bytes(fp32(engine), method, kind) == pytest.approx(expected.device + expected.host, rel=0.05), kind


@each_compiled
def test_c_computes_what_its_method_computes_without_it(fp32: Runs, compiled: Runs, engine: str, method: str) -> None:
    without = str(Method.parse("+".join(atom for atom in method.split("+") if atom != "C") or "Naive"))
    assert compiled(engine)[method][0]["losses"] == pytest.approx(
        fp32(engine)[without][0]["losses"], abs=FP32_TOLERANCE
    )
    for kind in ("parameters", "gradients", "optimizer"):
        assert state_bytes(compiled(engine), method, kind) == state_bytes(fp32(engine), without, kind), kind


@each_compiled
def test_c_compiles_one_layer_and_the_loss_in_the_first_step_and_runs_what_it_compiled(
    compiled: Runs, engine: str, method: str
) -> None:
    for rank in compiled(engine)[method]:
        assert rank["compiled_graphs"] == [2] * len(rank["losses"])
        assert rank["graph_breaks"] == 0
        assert rank["operators"]["CompiledFunctionBackward"] == LAYERS + 1
        assert any("cpp_fused" in name for name in rank["operators"])


@each_compiled
def test_under_c_the_attention_is_that_of_the_other_atoms(compiled: Runs, engine: str, method: str) -> None:
    observed, flash = compiled(engine)[method][0], "aten::_scaled_dot_product_flash_attention_for_cpu"
    if "F" in method.split("+"):
        assert observed["attention_kernel"] == flash
        assert observed["operators"][flash] == 2 * LAYERS, "R runs every layer again, compiled too"
    else:
        assert "fused__softmax" in observed["attention_kernel"]
        assert not any("flash_attention" in name for name in observed["operators"])


@pytest.mark.parametrize(("engine", "method"), [slow(engine, STILL) for engine in ENGINES])
def test_under_c_nothing_changes_without_a_learning_rate(compiled: Runs, engine: str, method: str) -> None:
    assert set(compiled(engine)[method][0]["losses"]) == {compiled(engine)["C"][0]["losses"][0]}


def test_a_rank_of_deepspeed_alone_reduces_nothing_and_several_reduce_in_the_gradients_dtype(
    fp32: Runs, alone: Runs
) -> None:
    for (observed,) in alone("deepspeed").values():
        assert observed["losses"][-1] < observed["losses"][0] - 0.2
        assert "aten::flatten_dense_tensors" not in observed["operators"], "no gradient goes into a bucket"
    assert "aten::flatten_dense_tensors" in fp32("deepspeed")["Naive"][0]["operators"]
    assert alone("deepspeed")["bf16_pure, 2"][0]["what_ran"]["reduced_in"] == "torch.bfloat16"
    assert fp32("deepspeed")["Naive"][0]["what_ran"]["reduced_in"] == "torch.float32"


def communicated(observed: dict[str, Any]) -> Counter[str]:
    """Collectives of the first step, by name."""
    return Counter({name: count for name, count in observed["operators"].items() if name.startswith("c10d::")})


def test_torch_alone_sends_nothing_and_accumulates_without_a_needless_collective(fp32: Runs, alone: Runs) -> None:
    observed = fp32("torch")
    assert not communicated(alone("torch")["fp32, 2"][0])
    for method in ("Naive", "Z1"):
        assert communicated(observed[f"{method}, 2 passes"][0]) == communicated(observed[method][0]) != {}
    gathered, scattered = "c10d::_allgather_base_", "c10d::_reduce_scatter_base_"
    for method, gathers, gathers_of_two in (("Z2", LAYERS + 1, LAYERS + 1), ("Z3", 2 * LAYERS + 1, 4 * LAYERS + 2)):
        assert communicated(observed[method][0]) == {gathered: gathers, scattered: LAYERS + 1}
        assert communicated(observed[f"{method}, 2 passes"][0]) == {gathered: gathers_of_two, scattered: 2 * LAYERS + 2}


def test_every_atom_of_pretraining_is_observed_here() -> None:
    assert {atom for method in [*METHODS, *COMPILED] for atom in method.split("+")} - {"Naive"} == {
        code for code, atom in ATOMS.items() if "pretrain" in atom.tasks
    }
