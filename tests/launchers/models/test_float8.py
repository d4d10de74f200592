"""Linear layers in fp8: what is converted, how near their losses are, and that what was asked for is proven."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from planning import Measurement, make_plan, make_plans
from torch.profiler import ProfilerActivity, profile

from llmexp.errors import ConfigError
from llmexp.launchers.models import assembly
from llmexp.launchers.models.float8 import PRODUCT, convert_linears, float8_that_ran
from llmexp.measure.kernels import KernelProbe
from llmexp.training.plan.training_plan import TrainingPlan

pytest.importorskip("torchao")

CPU = torch.device("cpu")
LAYERS, LINEARS = 2, 14
WORDS = ("engine=torch", "hardware=cpu", "model=tiny", f"model.num_layers={LAYERS}", "data.seq_len=64")
RECIPES = {"tensorwise": 3 * LINEARS, "rowwise": 3 * LINEARS, "rowwise_with_gw_hp": 2 * LINEARS}
# Its blocks of 32 elements divide the sides of tiny's other matrices.
MX = ("precision.scaling=mxfp8", "model.intermediate_size=352")
# Of losses, against bf16 (measured: at most 8e-4), and of fp32 parameters against one process (measured: 0).
WITHIN = 5e-3
SAME = 1e-4


def plan(*words: str) -> TrainingPlan:
    return make_plan(*WORDS, "parallelism.dp=1", "precision=fp8", *words)


def converted(made: TrainingPlan) -> torch.nn.Module:
    return assembly.with_atoms(assembly.seeded_model(made, CPU), made)


def stepped(model: torch.nn.Module) -> KernelProbe:
    probe, ids = KernelProbe(), torch.arange(64)[None]
    with probe.watch():
        model(input_ids=ids, labels=ids).loss.backward()
    return probe


def test_the_layers_matrices_are_converted_and_the_head_and_the_names_stay() -> None:
    made = plan()
    model = converted(made)
    kinds = {name: type(each).__name__ for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)}
    assert kinds.pop("lm_head") == "Linear"
    assert list(kinds.values()) == ["Float8Linear"] * LINEARS
    plain = assembly.seeded_model(made, CPU)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_products_in_fp8_are_counted_by_the_profiler(recipe: str) -> None:
    """A processor has torch's operator too, without the speed."""
    made = plan(f"precision.scaling={recipe}", "engine.options.float8.emulate=false", "model.intermediate_size=352")
    model = converted(made)
    probe = stepped(model)
    assert probe.names[PRODUCT] == RECIPES[recipe]
    assert "fp8" in (probe.products_in or "")
    said = float8_that_ran(made, model, probe.names)["linears"]
    assert said == f"fp8 {recipe} in {LINEARS} layers, {RECIPES[recipe]} products by {PRODUCT} in a step"
    assert not made.emulates


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("method", ["Naive", "R"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_flops_in_fp8_are_those_of_the_products(recipe: str, method: str) -> None:
    words = (f"precision.scaling={recipe}", "engine.options.float8.emulate=false", "model.intermediate_size=352")
    made, ids = plan(*words, f"method={method}"), torch.arange(64)[None]
    model = converted(made).train()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        model(input_ids=ids, labels=ids).loss.backward()
    shapes = [event.input_shapes[:2] for event in profiler.events() if event.name == PRODUCT]
    found = sum(2 * rows * inner * columns for (rows, inner), (_, columns) in shapes)
    assert made.flops
    assert made.flops.computed
    assert found == ids.numel() * made.flops.computed.fp8_per_position
    assert method == "R" or found == ids.numel() * made.flops.fp8_per_position


def test_a_run_that_asked_for_fp8_and_had_less_fails() -> None:
    made = plan("engine.options.float8.emulate=false", "batch.accumulation=2")
    with pytest.raises(ConfigError, match=f"a step had 42 products by {PRODUCT}, and 14 layers make 84 at least"):
        float8_that_ran(made, converted(made), {PRODUCT: 42})
    with pytest.raises(ConfigError, match="0 layers make 0"):
        float8_that_ran(made, assembly.seeded_model(made, CPU), {PRODUCT: 84})


def test_an_emulated_run_says_so() -> None:
    made = plan()
    model = converted(made)
    probe = stepped(model)
    assert PRODUCT not in probe.names
    assert made.emulates
    assert float8_that_ran(made, model, probe.names)["linears"].endswith("emulated: rounded to fp8, multiplied in fp32")


def test_blocks_that_share_a_scale_round_products_and_gradients() -> None:
    made, plain = plan(*MX), plan("precision=bf16_mixed", MX[1])
    model, exact = converted(made), assembly.seeded_model(plain, CPU).train()
    kinds = [type(each).__name__ for each in model.modules() if isinstance(each, torch.nn.Linear)]
    assert kinds == [*["MXFP8Linear"] * LINEARS, "Linear"]
    ids = torch.arange(64)[None]
    for each in (model, exact):
        each(input_ids=ids, labels=ids).loss.backward()
    said = float8_that_ran(made, model, {})["linears"]
    assert said == f"fp8 mxfp8 in {LINEARS} layers, emulated: rounded to fp8, multiplied in bf16"
    for (name, rounded), wanted in zip(model.named_parameters(), exact.parameters(), strict=True):
        assert rounded.grad is not None
        assert wanted.grad is not None
        error = float((rounded.grad - wanted.grad).norm() / wanted.grad.norm())
        # Three bits of mantissa err by 3 to 4 % in a product, and by more in one of several.
        assert 1e-3 < error < 0.3, name


def test_a_gpu_without_scales_of_blocks_is_refused_by_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    with pytest.raises(ConfigError, match=r"scaling=mxfp8: this GPU has compute capability 9\.0, and torchao"):
        convert_linears(torch.nn.Module(), {"recipe": "mxfp8", "emulate": False})


def test_a_gpu_that_multiplies_no_fp8_is_refused_by_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(ConfigError, match=r"compute capability 8\.0, and multiplies no fp8, which takes 8\.9"):
        convert_linears(torch.nn.Module(), {"recipe": "tensorwise", "emulate": False})


@pytest.fixture(scope="module")
def losses(observe: Callable[..., Measurement]) -> dict[str, list[float]]:
    half = make_plan(*WORDS, "parallelism.dp=1", "precision=bf16_mixed")
    made = {recipe: plan(f"precision.scaling={recipe}") for recipe in RECIPES}
    made |= {"mxfp8": plan(*MX), "bf16 of mxfp8": plan("precision=bf16_mixed", MX[1])}
    return {name: ranks[0]["losses"] for name, ranks in observe({"bf16": half} | made, 1).items()}


@pytest.mark.ranks
@pytest.mark.parametrize(("recipe", "half"), [*product(RECIPES, ["bf16"]), ("mxfp8", "bf16 of mxfp8")])
def test_losses_are_near_those_of_bf16(losses: dict[str, list[float]], recipe: str, half: str) -> None:
    assert losses[recipe] == pytest.approx(losses[half], rel=WITHIN)
    assert losses[recipe] != losses[half]
    assert losses[recipe][-1] < 0.97 * losses[recipe][0]


@pytest.mark.ranks
@pytest.mark.long
def test_every_layout_trains_what_one_process_trains(observe: Callable[..., Measurement]) -> None:
    words = (*WORDS, "precision=fp32", "precision.linears=fp8")
    alone = make_plan(*words, "parallelism.dp=1", "batch.accumulation=2")
    (single,) = observe({"alone": alone}, 1)["alone"]
    for name, ranks in observe(make_plans(("Naive", "Z1", "Z2", "Z3", "F+R+Z3+O"), *words, "parallelism.dp=2")).items():
        assert ranks[0]["losses"] == pytest.approx(single["losses"], rel=SAME), name
        sharded = "Z2" in name or "Z3" in name
        squares = sum(rank["gradient_squares"] for rank in ranks) if sharded else ranks[0]["gradient_squares"]
        assert squares == pytest.approx(single["gradient_squares"], rel=10 * SAME), name
