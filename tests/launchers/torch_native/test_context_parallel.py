"""Sequences that real gloo ranks share by engine=torch: the training of one plain process, and the bytes planned.

By the ring and by Ulysses, alone and with replicas, with everything that partitions state.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cut_training import FP32_TOLERANCE, LAYERS, SAMPLES, SEQ_LEN, Layouts, compare_saved, plan
from planning import Measurement, make_plan

from llmexp.inputs.shape import shape_of
from llmexp.training.plan.activations import activations

pytestmark = pytest.mark.ranks

RING, ULYSSES = (f"parallelism.cp=2 parallelism.cp_kind={kind}" for kind in ("ring", "ulysses"))
MOE = "model=tiny-moe"
CHUNKED = "kernels.chunked_loss=true"
QWEN = "model.architecture=qwen3 model.tie_embeddings=true"
# Measured: 1.3e-7 of losses, 2.5e-7 of gradient norms; in bf16 4e-4 and 4e-3.
ROWS = {
    "ring": RING,
    "ring, F": f"{RING} method=F",
    "ring, F+R, padded": f"{RING} method=F+R data.pack=false",
    "ring, R, qwen3": f"{RING} method=R {QWEN}",
    "ring, Z1": f"{RING} method=Z1",
    "ring, F, chunked, padded": f"{RING} method=F data.pack=false {CHUNKED}",
    "ulysses, Z3, chunked, tied": f"{ULYSSES} method=Z3 {QWEN} {CHUNKED}",
    "ring, F+Z2": f"{RING} method=F+Z2",
    "ring, Z3": f"{RING} method=Z3",
    "ring, F+R+Z3+O": f"{RING} method=F+R+Z3+O",
    "ring, F, experts": f"{RING} method=F {MOE}",
    "ring, F, bf16_mixed": f"{RING} method=F precision=bf16_mixed",
    "ring, Z3, bf16_mixed": f"{RING} method=Z3 precision=bf16_mixed",
    "ulysses": ULYSSES,
    "ulysses, F+R": f"{ULYSSES} method=F+R",
    "ulysses, RS, padded": f"{ULYSSES} method=RS data.pack=false",
    "ulysses, F, qwen3": f"{ULYSSES} method=F {QWEN}",
    "ulysses, F+Z1": f"{ULYSSES} method=F+Z1",
    "ulysses, Z2": f"{ULYSSES} method=Z2",
    "ulysses, Z2+O": f"{ULYSSES} method=Z2+O",
    "ulysses, F+R+Z3": f"{ULYSSES} method=F+R+Z3",
    "ulysses, Z3, experts": f"{ULYSSES} method=Z3 {MOE}",
    "ulysses, bf16_mixed": f"{ULYSSES} precision=bf16_mixed",
    "ulysses, F+Z2, bf16_mixed": f"{ULYSSES} method=F+Z2 precision=bf16_mixed",
    "dp 2, ring": f"parallelism.dp=2 {RING}",
    "dp 2, ring, F+R+Z3": f"parallelism.dp=2 {RING} method=F+R+Z3",
    "dp 2, ring, Z2": f"parallelism.dp=2 {RING} method=Z2",
    "dp 2, ulysses, F+Z1": f"parallelism.dp=2 {ULYSSES} method=F+Z1",
    "dp 2, ulysses, Z3": f"parallelism.dp=2 {ULYSSES} method=Z3",
    "cp 4, ring, F+Z3": "parallelism.cp=4 parallelism.cp_kind=ring method=F+Z3",
    # Key and value heads are fewer than the ranks.
    "cp 4, ulysses, Z2": "parallelism.cp=4 parallelism.cp_kind=ulysses method=Z2",
}
QUICK = {
    "ring, F+R, padded",
    "ring, F, chunked, padded",
    "ring, Z3",
    "ring, F, bf16_mixed",
    "ulysses",
    "ulysses, F+R+Z3",
}
LAYOUTS = Layouts(ROWS, QUICK, {*ROWS} - {"ring, F+Z2", "ring, Z3, bf16_mixed", "ulysses, Z2+O", "dp 2, ring, Z2"})


@pytest.fixture(scope="module")
def observed(observe: Callable[..., Measurement], asked: set[str]) -> Measurement:
    return LAYOUTS.train(observe, asked)


@pytest.mark.parametrize("name", LAYOUTS.fp32)
def test_ranks_compute_what_one_process_computes(observed: Measurement, name: str) -> None:
    LAYOUTS.compare(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.fp32)
def test_the_ranks_of_a_sequence_tell_its_whole_loss(observed: Measurement, name: str) -> None:
    dims, ranks = LAYOUTS.plan(name).dims, observed[name]
    for rank, found in enumerate(ranks):
        assert found["loss"] == ranks[rank // dims.cp * dims.cp]["loss"]


@pytest.mark.parametrize("name", LAYOUTS.bf16)
def test_bf16_follows_the_curve_of_fp32(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_bf16(observed, name)


@pytest.mark.parametrize("name", LAYOUTS.every)
def test_every_rank_holds_what_is_planned(observed: Measurement, name: str) -> None:
    LAYOUTS.compare_state(observed, name)


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
    whole = plan(f"{common} method=L")
    (alone,) = observe({"whole": whole}, 1, "updates_worker")["whole"]
    adapted = {name: plan(f"{common} {words}") for name, words in ADAPTED.items()}
    for ranks in observe(adapted, 2, "updates_worker").values():
        for rank in ranks:
            assert rank["loss"] == pytest.approx(alone["loss"], rel=FP32_TOLERANCE)
            assert rank["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=FP32_TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("words", [RING, f"{ULYSSES} method=Z3"])
def test_transformers_loads_the_whole_model_that_was_saved(observe: Callable[..., Measurement], words: str) -> None:
    compare_saved(observe, f"parallelism.dp=1 {words}")


LIVING = {"ring": RING, "ring, F+R": f"{RING} method=F+R", "ulysses, F": f"{ULYSSES} method=F"}


@pytest.mark.slow
def test_what_lives_after_forward_is_what_is_planned(observe: Callable[..., Measurement]) -> None:
    """Sequences are long, so that a ring's scores would show."""
    plans = {
        name: make_plan(
            *("engine=torch", "hardware=cpu", "precision=fp32", "parallelism.dp=1"),
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
