"""Table IX's methods on two real ranks: what trains, what stays, and in how many bits it is held.

There is one loss curve for one mathematics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from marks import tier
from planning import Measurement, make_plans

from llmexp.method import ATOMS, Method
from llmexp.paper.printed import read_table
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = [pytest.mark.ranks, pytest.mark.long]

Runs = Callable[[str], Measurement]
ENGINES = ["deepspeed", "torch"]
PROGRAM_PRESETS = ("L", "QL", "P")
TABLE_09 = {str(Method.parse(row["method"], "finetune")) for row in read_table("table09_finetune_bs1")}
WIDER = {"P+F+R", "P+Z2", "P+Z3", "QL+Z3", "QL+F+R+Z3+O"}
METHODS = sorted(str(Method.parse(method, "finetune")) for method in {*TABLE_09, *WIDER, *PROGRAM_PRESETS})
# Each adapter, and what it meets in DeepSpeed's and in torch's partitions; the others are run by make test-sweeps.
SHORT = {*PROGRAM_PRESETS, "QL+Z3", "P+Z3", "QL+Z2+O", "L+F+R+Z3+O"}
COMPILED = ["L+C", "QL+C"]
LAYERS = 2
FP32_TOLERANCE = 1e-5
TARGETS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def plan(engine: str, method: str, *overrides: str) -> TrainingPlan:
    words = (
        "task=finetune",
        "hardware=cpu",
        "parallelism.dp=2",
        "data=text",
        "data.seq_len=64",
        "precision=fp32",
        f"engine={engine}",
    )
    return make_plans((*METHODS, *COMPILED), *words, f"model.num_layers={LAYERS}", *overrides)[method]


def runnable(engine: str) -> list[str]:
    return [method for method in METHODS if plan(engine, method).skip is None]


@pytest.fixture(scope="module")
def fp32(observe: Callable[..., Measurement], asked: set[str]) -> Runs:
    def run(engine: str) -> Measurement:
        wanted = [name for name in runnable(engine) if name in asked]
        methods = {
            name: plan(engine, name)
            for name in dict.fromkeys([*PROGRAM_PRESETS, *wanted, *(name for name in COMPILED if name in asked)])
        }
        return observe(methods | {f"{name}, lr 0": plan(engine, name, "optimizer.lr=0.0") for name in wanted})

    return cache(run)


def one_of(method: str) -> str:
    """The adapter's own code."""
    return next(code for code in method.split("+") if code in PROGRAM_PRESETS)


# Each adapter alone, and all atoms at once.
QUICK = {*PROGRAM_PRESETS, "L+F+R+Z3+O"}
RUNS = [pytest.param(engine, method, marks=tier(method, QUICK, SHORT)) for engine in ENGINES for method in METHODS]
each_run = pytest.mark.parametrize(("engine", "method"), RUNS)


def skip_unrunnable(engine: str, method: str) -> None:
    if skip := plan(engine, method).skip:
        assert engine == "torch"
        assert "QL" in method.split("+")
        pytest.skip(skip.reason)


def test_only_fsdp2_with_four_bits_is_left_out() -> None:
    assert len(TABLE_09) == 18
    assert runnable("deepspeed") == METHODS
    assert {method for method in METHODS if method not in runnable("torch")} == {
        m for m in METHODS if "QL" in m and ("Z2" in m or "Z3" in m)
    }


@each_run
def test_without_a_learning_rate_the_loss_stays(fp32: Runs, engine: str, method: str) -> None:
    skip_unrunnable(engine, method)
    losses = fp32(engine)[f"{method}, lr 0"][0]["losses"]
    assert len(set(losses)) == 1


@each_run
def test_every_method_lowers_the_loss_as_its_adapter_alone_does(fp32: Runs, engine: str, method: str) -> None:
    skip_unrunnable(engine, method)
    losses = fp32(engine)[method][0]["losses"]
    assert losses[-1] < losses[0] - 0.005
    assert losses == pytest.approx(fp32("deepspeed")[one_of(method)][0]["losses"], abs=FP32_TOLERANCE)


@each_run
def test_only_the_adapter_trains(fp32: Runs, engine: str, method: str) -> None:
    skip_unrunnable(engine, method)
    observed, names = fp32(engine)[method][0], fp32(engine)[method][0]["trained_names"]
    assert observed["trainable_parameters"] == plan(engine, method).trainable_parameters
    if one_of(method) == "P":
        assert [name.rpartition(".")[0] for name in names] == ["prompt_encoder.default.embedding"]
    else:
        assert len(names) == LAYERS * len(TARGETS) * 2
        assert {name.split(".")[-4] for name in names} == TARGETS
        assert {name.split(".")[-3] for name in names} == {"lora_A", "lora_B"}


@each_run
def test_frozen_weights_are_the_same_bits_after_training(fp32: Runs, engine: str, method: str) -> None:
    skip_unrunnable(engine, method)
    for rank in fp32(engine)[method]:
        assert rank["frozen_digests"][0] == rank["frozen_digests"][1]


@each_run
def test_f_and_r_act_as_in_pretraining(fp32: Runs, engine: str, method: str) -> None:
    skip_unrunnable(engine, method)
    for rank in fp32(engine)[method]:
        atoms = method.split("+")
        assert bool([name for name in rank["operators"] if "flash_attention" in name]) == ("F" in atoms)
        assert rank["layer_calls"] == LAYERS * (2 if "R" in atoms else 1)


@each_run
def test_predicted_memory_is_what_is_allocated(fp32: Runs, engine: str, method: str) -> None:
    skip_unrunnable(engine, method)
    predicted = plan(engine, method).memory
    assert predicted is not None
    for kind in ("parameters", "optimizer"):
        expected, held = getattr(predicted, kind), fp32(engine)[method][0]["state"][kind]
        for place in ("device", "host"):
            assert held[place] == pytest.approx(getattr(expected, place), rel=0.05), (kind, place)


@pytest.mark.parametrize("engine", ENGINES)
def test_four_bits_are_four_bits_in_memory(fp32: Runs, engine: str) -> None:
    whole, four_bit = (fp32(engine)[method][0]["state"]["parameters"]["device"] for method in ("L", "QL"))
    linear = LAYERS * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 344 * 128)
    assert whole - four_bit == pytest.approx((4 - 0.516) * linear, rel=0.01)
    assert any("4bit" in name for name in fp32(engine)["QL"][0]["operators"])


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", COMPILED)
def test_c_computes_what_its_adapter_computes_without_it(fp32: Runs, engine: str, method: str) -> None:
    losses = fp32(engine)[method][0]["losses"]
    assert losses == pytest.approx(fp32(engine)[one_of(method)][0]["losses"], abs=FP32_TOLERANCE)


def test_every_atom_of_finetuning_is_observed_here() -> None:
    here = {atom for method in [*METHODS, *COMPILED] for atom in method.split("+")}
    assert {code for code, atom in ATOMS.items() if atom.tasks == ("finetune",)} <= here
