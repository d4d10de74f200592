import torch
from torch.profiler import ProfilerActivity, profile

from llmexp.measure.products import products_in


def seen(work) -> str | None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        work()
    return products_in(profiler.profiler.kineto_results.events())


def step(model: torch.nn.Module, dtype: torch.dtype = torch.float32) -> None:
    model(torch.randn(4, 8, 32, dtype=dtype)).sum().backward()


def test_products_are_named_by_the_dtype_of_their_operands():
    assert seen(lambda: step(torch.nn.Linear(32, 32))) == "fp32"
    assert seen(lambda: step(torch.nn.Linear(32, 32).bfloat16(), torch.bfloat16)) == "bf16"


def test_autocast_shows_although_parameters_stay_in_fp32():
    model = torch.nn.Linear(32, 32)

    def autocast() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step(model)

    assert seen(autocast) == "bf16"
    assert model.weight.dtype == torch.float32


def test_small_products_in_another_dtype_are_not_named_and_large_ones_are():
    def both(size: int) -> None:
        step(torch.nn.Linear(32, 32).bfloat16(), torch.bfloat16)
        torch.randn(size, size) @ torch.randn(size, size)

    assert seen(lambda: both(4)) == "bf16"
    assert seen(lambda: both(64)) == "fp32 and bf16"


def test_without_products_there_is_no_dtype():
    assert seen(lambda: torch.randn(3).exp()) is None
