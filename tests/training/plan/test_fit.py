from __future__ import annotations

from collections.abc import Callable

import pytest

from llmexp.record.digits import GIB
from llmexp.record.memory import Fit
from llmexp.training.plan.fit import fit_of, largest_micro
from llmexp.training.plan.training_plan import TrainingPlan

Made = Callable[..., TrainingPlan]


def need(plan: TrainingPlan, micro: int) -> int:
    """The most bytes that a rank is expected to hold."""
    fit = fit_of(plan, micro)
    assert fit
    return fit.need


def test_the_three_verdicts_and_their_bounds():
    def verdict(rest: int, waste: int) -> tuple[str, bool]:
        fit = Fit(state=10, rest=rest, capacity=100, waste=waste)
        return fit.verdict, fit.certain

    assert [verdict(80, waste) for waste in (7, 8, 50)] == [("yes", False), ("uncertain", False), ("uncertain", False)]
    assert [verdict(rest, 0) for rest in (87, 88, 90, 91)] == [
        ("yes", False),
        ("uncertain", False),
        ("uncertain", False),
        ("no", False),
    ]
    assert Fit(state=101, rest=0, capacity=100).certain


def test_the_largest_batch_fits_and_one_more_is_uncertain(plan: Made):
    made = plan("model=7b", "method=F+Z3", "precision=bf16_mixed")
    largest = largest_micro(made)
    assert largest is not None
    assert largest > 1
    verdicts = [fit.verdict for fit in (fit_of(made, largest), fit_of(made, largest + 1)) if fit]
    assert verdicts == ["yes", "uncertain"]


def test_the_parts_add_up_to_what_is_needed_at_the_fullest_moment(plan: Made):
    for words in (["method=F+Z3", "batch.micro=16"], ["method=Naive"], ["method=Z2+O"], ["engine=torch", "method=Z2"]):
        made = plan("model=7b", "precision=bf16_mixed", *words)
        fit = fit_of(made, made.batch.micro)
        assert fit
        assert sum(fit.parts.values()) == fit.need
        assert fit.most - fit.need <= 0.3 * fit.parts.get("activations", fit.need)
    assert made.memory
    assert fit.parts["parameters"] == made.memory.parameters.device


def test_where_not_even_one_fits_the_largest_batch_is_one(plan: Made):
    made = plan("model=13b", "method=Naive", "precision=bf16_mixed")
    assert largest_micro(made) == 1


@pytest.mark.parametrize("words", [["model.target=own.Model"], ["hardware.memory_bytes=null"]])
def test_nothing_is_said_where_the_model_or_the_device_is_not_known(words: list[str], plan: Made):
    made = plan("model=tiny", *words)
    assert (fit_of(made, 1), largest_micro(made)) == (None, None)


def test_a_memory_limit_counts_instead_of_the_devices_memory(plan: Made):
    whole = plan("model=7b", "method=F+Z3")
    limited = plan("model=7b", "method=F+Z3", f"hardware.memory_limit_bytes={40 * GIB}")
    assert need(limited, 4) == need(whole, 4)
    assert (largest_micro(limited) or 0) < (largest_micro(whole) or 0)


def test_buckets_of_ddp_are_beside_activations_and_gradients_that_are_freed_are_not(plan: Made):
    words = ["engine=torch", "model=7b", "precision=bf16_pure"]
    one, several = (plan(*words, f"parallelism.dp={dp}").memory for dp in (1, 8))
    assert one is not None
    assert several is not None
    assert several.before_backward - one.before_backward == several.gradients.device
    assert one.device == several.device


@pytest.mark.parametrize("engine", ["deepspeed", "torch"])
def test_gradients_of_earlier_passes_are_beside_activations(engine: str, plan: Made):
    words = [f"engine={engine}", "model=7b", "precision=bf16_pure", "parallelism.dp=1"]
    one, two = (plan(*words, f"batch.accumulation={passes}").memory for passes in (1, 2))
    assert one is not None
    assert two is not None
    assert two.before_backward - one.before_backward == two.gradients.device > 0


def test_zeros_buckets_and_gathered_parameters_are_the_engines_own(plan: Made):
    words = ["model=7b", "method=Z3", "precision=bf16_mixed"]
    default = plan(*words).memory
    less = [
        f"+engine.options.zero_optimization.stage3_max_{what}=100_000_000"
        for what in ("live_parameters", "reuse_distance")
    ]
    ahead, small = plan(*words, less[0]).memory, plan(*words, *less).memory
    assert default is not None
    assert small is not None
    assert ahead is not None
    # What is used again soon stays, however little is gathered ahead.
    assert ahead.buffers == default.buffers
    assert default.buffers == 2 * (2 * 500_000_000 + 1_000_000_000)
    assert small.buffers == 2 * (2 * 500_000_000 + 100_000_000)
    assert default.device == small.device


def test_on_cpu_the_interpreters_own_memory_counts(plan: Made):
    words = ["model=tiny", "hardware=cpu", "hardware.host_memory_bytes=8_000_000_000"]
    made, limited = plan(*words), plan(*words, "hardware.memory_limit_bytes=256_000_000")
    assert need(made, 1) - need(limited, 1) == 500_000_000
    assert 1 < (largest_micro(limited) or 0) < (largest_micro(made) or 0)
