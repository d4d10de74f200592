"""precision.qat: forward has the rounded weights' loss, backward the gradients that rounding lets through."""

from __future__ import annotations

from typing import Any

import pytest
import stepping
import torch
from marks import slow
from planning import make_plan
from torch import nn

from llmexp.errors import ConfigError
from llmexp.launchers.models.compiled import decoder_layers

CPU = torch.device("cpu")
GROUP, LIMITS = 8, {"int2": (-2, 1), "int3": (-4, 3), "int4": (-8, 7), "int8": (-128, 127)}

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is an Enum subclass:DeprecationWarning"),
]


def built(*words: str) -> tuple[Any, Any]:
    """A training and its plan."""
    from llmexp.launchers.torch_native import worker  # DDP's optimizers take a second to import

    fixed = ("hardware=cpu", "engine=torch", "parallelism.dp=1", "model=tiny", "model.num_layers=2", "precision=fp32")
    plan = make_plan(*fixed, "data.seq_len=32", "batch.micro=2", f"precision.qat_group_size={GROUP}", *words)
    assert plan.skip is None
    torch.manual_seed(0)
    return worker.build(plan, CPU), plan


def linears(module: nn.Module) -> list[nn.Linear]:
    return [each for layer in decoder_layers(module) for each in layer.modules() if isinstance(each, nn.Linear)]


def rounded(weight: torch.Tensor, dtype: str, group: int = GROUP) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights to the nearest of a group's steps, and which of them lie within its limits."""
    least, most = LIMITS[dtype]
    groups = weight.detach().reshape(-1, group)
    scale = groups.abs().amax(1, keepdim=True) / ((most - least) / 2)
    # A group's largest weight lies half-way between two steps, so that the last bit counts.
    codes = (groups * (1 / scale)).round()
    within = (codes >= least) & (codes <= most)
    return (codes.clamp(least, most) * scale).reshape(weight.shape), within.reshape(weight.shape)


def loss_and_gradients(training: Any, plan: Any) -> tuple[float, list[torch.Tensor]]:
    (batch,) = next(stepping.batches_of(plan, training, 1, CPU))
    loss = training.forward(batch)
    training.backward(loss)
    return loss.item(), [each.weight.grad for each in linears(training.module)]


@pytest.mark.parametrize("dtype", sorted(LIMITS))
@pytest.mark.usefixtures("alone")
def test_a_step_is_that_of_rounded_weights(dtype: str) -> None:
    loss, gradients = loss_and_gradients(*built(f"precision.qat={dtype}"))
    plain, plan = built()
    matrices = linears(plain.module)
    kept = []
    for each in matrices:
        made, within = rounded(each.weight, dtype)
        each.weight.data, kept = made, [*kept, within]
    expected, theirs = loss_and_gradients(plain, plan)
    assert loss == pytest.approx(expected, rel=1e-6)
    assert len(gradients) == 14
    for gradient, full, within in zip(gradients, theirs, kept, strict=True):
        torch.testing.assert_close(gradient, full * within, rtol=1e-4, atol=1e-7)


@pytest.mark.usefixtures("alone")
def test_names_and_weights_stay_and_what_ran_counts_them() -> None:
    from llmexp.launchers.models.fake_quantizing import weights_that_were_rounded

    training, plan = built("precision.qat=int4")
    other, _ = built()
    assert [*training.module.state_dict()] == [*other.module.state_dict()]
    torch.testing.assert_close(training.module.state_dict(), other.module.state_dict(), rtol=0, atol=0)
    for module, said in ((training.module, "0 of 14"), (other.module, "0 of 0")):
        with pytest.raises(ConfigError, match=f"{said} linear layers rounded their weights"):
            weights_that_were_rounded(module)
    loss_and_gradients(training, plan)
    assert weights_that_were_rounded(training.module) == {"rounded_weights": "int4 in groups of 8, 14 matrices"}


def losses(dtype: str, steps: int, *words: str) -> tuple[float, float]:
    """The loss of what training read, with its weights as they are, and once they are rounded."""
    wide = ("model.intermediate_size=256", "precision.qat_group_size=128", "optimizer.lr=0.003")
    training, plan = built(*wide, *words)
    # What is learned has to be in the matrices that are rounded.
    training.module.get_input_embeddings().requires_grad_(False)
    training.module.get_output_embeddings().requires_grad_(False)
    (batch,) = next(stepping.batches_of(plan, training, 1, CPU))
    for _ in range(steps):
        training.backward(training.forward(batch))
        training.step()
    plain, _ = built(*wide)
    plain.module.load_state_dict(training.module.state_dict())
    with torch.no_grad():
        exact = plain.forward(batch).item()
        for each in linears(plain.module):
            each.weight.data, _ = rounded(each.weight, dtype, 128)
        return exact, plain.forward(batch).item()


@pytest.mark.parametrize("dtype", ["int2", slow("int3")])
@pytest.mark.usefixtures("alone")
def test_rounding_costs_less_where_training_knew_of_it(dtype: str) -> None:
    (exact, ordinary), (_, aware) = losses(dtype, 60), losses(dtype, 60, f"precision.qat={dtype}")
    assert ordinary > exact + 0.005
    assert aware - exact < 0.6 * (ordinary - exact)


@pytest.mark.usefixtures("alone")
def test_lion_in_eight_bits_trains_matrices_that_are_rounded_to_int8() -> None:
    from llmexp.launchers.models.fake_quantizing import weights_that_were_rounded

    training, plan = built("precision.qat=int8", "optimizer=lion8bit", "optimizer.lr=1e-3")
    (batch,) = next(stepping.batches_of(plan, training, 1, CPU))
    found = []
    for _ in range(10):
        loss = training.forward(batch)
        training.backward(loss)
        training.step()
        found.append(loss.item())
    assert found[-1] < 0.8 * found[0]
    assert weights_that_were_rounded(training.module) == {"rounded_weights": "int8 in groups of 8, 14 matrices"}
    assert training.what_ran()["optimizer_class"] == "bitsandbytes.optim.lion.Lion8bit"
    states = training.layout.optimizer.state
    assert {states[each.weight]["state1"].dtype for each in linears(training.module)} == {torch.uint8}
