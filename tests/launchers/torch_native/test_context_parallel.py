"""Sequences that real gloo ranks share by engine=torch: the training of one plain process, and the bytes planned.

By the ring and by Ulysses, alone and with replicas, with everything that partitions state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import checkpoints
import pytest
from alone import Alone, train_alone
from marks import tier
from planning import Measurement, make_plan
from transformers import AutoModelForCausalLM

from llmexp.inputs.shape import shape_of
from llmexp.training.plan.activations import activations
from llmexp.training.plan.training_plan import TrainingPlan

pytestmark = pytest.mark.ranks

SAMPLES, STEPS, SEQ_LEN, LAYERS = 4, 4, 48, 2
SMALL = (
    *("model.hidden_size=64", "model.intermediate_size=96", "model.head_dim=16", "model.vocab_size=288"),
    f"model.num_layers={LAYERS}",
)
# Larger than any norm: it is measured, and nothing is clipped.
MEASURED = "optimizer.clip_norm=1000"
RING, ULYSSES = "parallelism.cp_kind=ring", "parallelism.cp_kind=ulysses"
MOE = "model=tiny-moe"
QWEN = "model.architecture=qwen3 model.tie_embeddings=true"
# Layouts by ranks, each with its words; all of them train on the same 4 sequences a step.
LAYOUTS: dict[str, tuple[int, str]] = {
    "ring": (2, RING),
    "ring, F": (2, f"{RING} method=F"),
    "ring, F+R, padded": (2, f"{RING} method=F+R data.pack=false"),
    "ring, R, qwen3": (2, f"{RING} method=R {QWEN}"),
    "ring, Z1": (2, f"{RING} method=Z1"),
    "ring, F+Z2": (2, f"{RING} method=F+Z2"),
    "ring, Z3": (2, f"{RING} method=Z3"),
    "ring, F+R+Z3+O": (2, f"{RING} method=F+R+Z3+O"),
    "ring, F, experts": (2, f"{RING} method=F {MOE}"),
    "ring, F, bf16_mixed": (2, f"{RING} method=F precision=bf16_mixed"),
    "ring, Z3, bf16_mixed": (2, f"{RING} method=Z3 precision=bf16_mixed"),
    "ulysses": (2, ULYSSES),
    "ulysses, F+R": (2, f"{ULYSSES} method=F+R"),
    "ulysses, RS, padded": (2, f"{ULYSSES} method=RS data.pack=false"),
    "ulysses, F, qwen3": (2, f"{ULYSSES} method=F {QWEN}"),
    "ulysses, F+Z1": (2, f"{ULYSSES} method=F+Z1"),
    "ulysses, Z2": (2, f"{ULYSSES} method=Z2"),
    "ulysses, Z2+O": (2, f"{ULYSSES} method=Z2+O"),
    "ulysses, F+R+Z3": (2, f"{ULYSSES} method=F+R+Z3"),
    "ulysses, Z3, experts": (2, f"{ULYSSES} method=Z3 {MOE}"),
    "ulysses, bf16_mixed": (2, f"{ULYSSES} precision=bf16_mixed"),
    "ulysses, F+Z2, bf16_mixed": (2, f"{ULYSSES} method=F+Z2 precision=bf16_mixed"),
    "dp 2, ring": (4, f"parallelism.dp=2 {RING}"),
    "dp 2, ring, F+R+Z3": (4, f"parallelism.dp=2 {RING} method=F+R+Z3"),
    "dp 2, ring, Z2": (4, f"parallelism.dp=2 {RING} method=Z2"),
    "dp 2, ulysses, F+Z1": (4, f"parallelism.dp=2 {ULYSSES} method=F+Z1"),
    "dp 2, ulysses, Z3": (4, f"parallelism.dp=2 {ULYSSES} method=Z3"),
    "cp 4, ring, F+Z3": (4, f"parallelism.cp=4 {RING} method=F+Z3"),
    # Key and value heads are fewer than the ranks.
    "cp 4, ulysses, Z2": (4, f"parallelism.cp=4 {ULYSSES} method=Z2"),
}
QUICK = {"ring, F+R, padded", "ring, Z3", "ring, F, bf16_mixed", "ulysses", "ulysses, F+R+Z3"}
SHORT = {*LAYOUTS} - {"ring, F+Z2", "ring, Z3, bf16_mixed", "ulysses, Z2+O", "dp 2, ring, Z2"}
EVERY = [pytest.param(name, marks=tier(name, QUICK, SHORT)) for name in LAYOUTS]
FP32 = [each for each, name in zip(EVERY, LAYOUTS, strict=True) if "bf16" not in name]
# Measured: 1.3e-7 of losses, 2.5e-7 of gradient norms; in bf16 4e-4 and 4e-3.
FP32_TOLERANCE, BF16_TOLERANCE = 1e-6, 5e-3


@cache
def plan(words: str) -> TrainingPlan:
    dp = 2 if "parallelism.dp=2" in words else 1
    common = ["engine=torch", "hardware=cpu", f"data.seq_len={SEQ_LEN}", "measure=smoke", *SMALL]
    protocol = ["measure.warmup_steps=1", f"measure.steps={STEPS - 1}", f"batch.accumulation={SAMPLES // dp}"]
    defaults = ["precision=fp32"] * ("precision" not in words) + ["parallelism.dp=1"] * (dp == 1)
    defaults += ["parallelism.cp=2"] * ("parallelism.cp=" not in words)
    made = make_plan(*common, *protocol, *defaults, *words.split(), MEASURED)
    assert made.skip is None
    return made


def one_process(words: str) -> Alone:
    return _one_process(" ".join(word for word in words.split() if word.startswith(("model", "data"))))


@cache
def _one_process(words: str) -> Alone:
    return train_alone(plan(words))


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    found: Measurement = {}
    for ranks in (2, 4):
        wanted = {name: plan(words) for name, (needs, words) in LAYOUTS.items() if needs == ranks and name in asked}
        found |= observe(wanted, ranks, "updates_worker") if wanted else {}
    return found


def mean_losses(observed: Measurement, name: str) -> list[float]:
    ranks = observed[name]
    return [sum(step) / len(ranks) for step in zip(*(rank["loss"] for rank in ranks), strict=True)]


@pytest.mark.parametrize("name", FP32)
def test_ranks_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    alone = one_process(LAYOUTS[name][1])
    assert alone.losses[-1] < alone.losses[0] - 0.01
    assert mean_losses(observed, name) == pytest.approx(alone.losses, rel=FP32_TOLERANCE)
    for rank in observed[name]:
        assert rank["gradient_norm"] == pytest.approx(alone.gradient_norms, rel=FP32_TOLERANCE)
        assert rank["first"] == pytest.approx(alone.gradient_norms[0], rel=FP32_TOLERANCE)


@pytest.mark.parametrize("name", FP32)
def test_the_ranks_of_a_sequence_tell_its_whole_loss(observed: Measurement, name: str) -> None:
    dims, ranks = plan(LAYOUTS[name][1]).dims, observed[name]
    for rank, found in enumerate(ranks):
        assert found["loss"] == ranks[rank // dims.cp * dims.cp]["loss"]


@pytest.mark.parametrize("name", [each for each in EVERY if each not in FP32])
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    expected = one_process("")
    assert mean_losses(observed, name) == pytest.approx(expected.losses, rel=BF16_TOLERANCE)
    assert observed[name][0]["gradient_norm"] == pytest.approx(expected.gradient_norms, rel=10 * BF16_TOLERANCE)


@pytest.mark.parametrize("name", EVERY)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    """ZeroRedundancyOptimizer shares out whole parameters, so that its parts differ."""
    memory, ranks = plan(LAYOUTS[name][1]).memory, observed[name]
    assert memory is not None
    for rank in ranks:
        for kind in ("parameters", "gradients"):
            assert rank["state"][kind] == getattr(memory, kind).device, kind
        assert rank["state"].get("gathered", 0) == memory.gathered
    states, count = [rank["state"]["optimizer"] for rank in ranks], len(ranks)
    assert sum(states) == count * memory.optimizer.device
    assert "Z1" in name or states == [memory.optimizer.device] * count


FLASH, UNFUSED = "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_softmax"
KERNELS = {
    "ring": (RING, UNFUSED),
    "ring, F+R": (f"{RING} method=F+R", FLASH),
    "ulysses, F": (f"{ULYSSES} method=F", FLASH),
}


def test_a_rank_computes_with_its_share_of_a_sequence_by_the_kernel_of_its_method(
    observe: Callable[..., Measurement],
) -> None:
    plans = {name: plan(words) for name, (words, _) in KERNELS.items()}
    for name, ranks in observe(plans, 2, "methods_worker").items():
        passes = SAMPLES * (2 if "R" in plans[name].method.split("+") else 1)
        for rank in ranks:
            assert rank["positions"] == [SEQ_LEN // 2]
            assert rank["layer_calls"] == passes * LAYERS
            assert rank["attention_kernel"] == KERNELS[name][1]
            assert rank["what_ran"]["attention_implementation"] == f"llmexp_{plans[name].dims.cp_kind}"


ADAPTED = {"L": f"{RING} method=L", "L+F+Z3": f"{ULYSSES} method=L+F+Z3", "L+R+Z3+O": f"{RING} method=L+R+Z3+O"}


@pytest.mark.slow
def test_adapters_train_as_on_one_rank(observe: Callable[..., Measurement]) -> None:
    common = "task=finetune data=synthetic optimizer.lr=1e-2 adapter.dropout=0"
    whole = plan(f"{common} method=L parallelism.cp=1")
    (alone,) = observe({"whole": whole}, 1, "updates_worker")["whole"]
    adapted = {name: plan(f"{common} {words}") for name, words in ADAPTED.items()}
    for ranks in observe(adapted, 2, "updates_worker").values():
        for rank in ranks:
            assert rank["loss"] == pytest.approx(alone["loss"], rel=FP32_TOLERANCE)
            assert rank["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=FP32_TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("words", [RING, f"{ULYSSES} method=Z3"])
def test_transformers_loads_the_whole_model_that_was_saved(observe: Callable[..., Measurement], words: str) -> None:
    common = ["engine=torch", "hardware=cpu", "data.seq_len=48", "precision=fp32", "optimizer.lr=1e-2", *SMALL]
    made = make_plan(*common, "parallelism.dp=1", "parallelism.cp=2", "task.save_model=true", *words.split())
    first = observe({"saved": made}, 2, "keeping_worker")["saved"][0]
    loss, _ = checkpoints.first_outputs(made, AutoModelForCausalLM.from_pretrained(Path(first["folder"]) / "model"))
    assert first["losses"][2] < first["losses"][0] - 0.1
    assert loss == pytest.approx(first["losses"][2], rel=FP32_TOLERANCE)


LIVING = {"ring": RING, "ring, F+R": f"{RING} method=F+R", "ulysses, F": f"{ULYSSES} method=F"}


@pytest.mark.slow
def test_what_lives_after_forward_is_what_is_planned(observe: Callable[..., Measurement]) -> None:
    """Sequences are long, so that a ring's scores would show."""
    plans = {
        name: make_plan(
            *("engine=torch", "hardware=cpu", "precision=fp32", "parallelism.dp=1", "parallelism.cp=2"),
            *("model=tiny", "data=synthetic", "data.seq_len=512", "batch.micro=2", *words.split()),
        )
        for name, words in LIVING.items()
    }
    for name, ranks in observe(plans, 2, "living_worker").items():
        made = plans[name]
        shape, memory = shape_of(made.config.model), made.memory
        assert shape is not None
        assert memory is not None
        kept = activations(shape, made.config, made.techniques, made.dims, made.batch.micro).kept
        planned = memory.parameters.device + memory.optimizer.device + memory.standing_gradients + kept
        assert max(rank["living"]["forward"] for rank in ranks) == pytest.approx(planned, rel=0.05), name
