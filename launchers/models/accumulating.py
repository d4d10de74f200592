"""Linear layers whose weights' gradients are products that add to those of a step's earlier passes.

Autograd makes a new gradient in each pass and adds it afterwards, which reads and writes every gradient once more. A
product can add to its result instead, as in Megatron's fusion of gradient accumulation.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.utils.flop_counter import register_flop_formula

from llmexp.errors import ConfigError

_LIBRARY = torch.library.Library("llmexp", "FRAGMENT")
_LIBRARY.define("add_product(Tensor gradients, Tensor inputs, Tensor(a!) into, Tensor begun) -> ()")
_COUNTED: Counter[str] = Counter()


def _add_product(gradients: Tensor, inputs: Tensor, into: Tensor, begun: Tensor) -> None:
    """Add gradients' x inputs to `into`, or write it there where the step has not begun yet; rows are tokens."""
    _COUNTED["products"] += 1
    if begun.item():
        torch.addmm(into, gradients.t(), inputs, out=into)
    else:
        torch.mm(gradients.t(), inputs, out=into)


def _add_nothing(*_: Tensor) -> None:
    """Stand for the product where tensors have no content: nothing is allocated."""


def _flops(gradients: tuple[int, int], inputs: tuple[int, int], *_: Any, **__: Any) -> int:
    return 2 * gradients[0] * gradients[1] * inputs[1]


_LIBRARY.impl("add_product", _add_product, "CompositeExplicitAutograd")
torch.library.register_fake("llmexp::add_product", _add_nothing, lib=_LIBRARY)
register_flop_formula(torch.ops.llmexp.add_product)(_flops)


class _Product(torch.autograd.Function):
    """A linear function whose backward adds the weight's gradient to `into` and gives autograd none."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, *into_and_begun: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        # A saved tensor may be moved or copied until backward, and this one is written to.
        ctx.into, ctx.begun = into_and_begun
        return functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        rows = _rows(gradient)
        torch.ops.llmexp.add_product(rows, _rows(inputs), ctx.into, ctx.begun)
        of_inputs = gradient @ weight if ctx.needs_input_grad[0] else None
        return of_inputs, None, rows.sum(0) if ctx.needs_input_grad[2] else None, None, None


class _Kept(torch.autograd.Function):
    """The identity, which keeps the inputs of a layer for `_Added`."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        ctx.save_for_backward(inputs)
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Added(torch.autograd.Function):
    """The identity, whose backward adds the gradient of a layer's weight to `into`."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, kept: Any, into: Tensor, begun: Tensor) -> Tensor:
        ctx.kept, ctx.into, ctx.begun = kept, into, begun
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (inputs,) = ctx.kept.saved_tensors
        torch.ops.llmexp.add_product(_rows(gradient), _rows(inputs), ctx.into, ctx.begun)
        return gradient, None, None, None


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def _as_tensor(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


class AccumulatingLinear(nn.Linear):
    """A linear layer that adds to the gradient `into` while it has one, and else is an ordinary one."""

    into: Tensor | None = None
    begun: Tensor

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's result."""
        if self.into is None:
            return super().forward(input)
        if torch.compiler.is_compiling() or not input.requires_grad:
            return _as_tensor(_Product, input, self.weight, self.bias, self.into, self.begun)
        # Recomputation ends where all is kept that was kept before: after the product, if the product's function kept
        # its inputs. torch's own linear function keeps the weight before it computes.
        kept = _as_tensor(_Kept, input)
        result = functional.linear(kept, self.weight.detach(), self.bias)
        return _as_tensor(_Added, result, kept.grad_fn, self.into, self.begun)


class FusedAccumulation:
    """The accumulating layers of a model, from the first pass of a step to its update."""

    def __init__(self, model: nn.Module) -> None:
        """Change the model's trained linear layers, those whose weights others use excepted."""
        users = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
        self._layers: list[AccumulatingLinear] = []
        self._begun, self._passes = torch.tensor(False), 0
        for module in model.modules():
            if type(module) is nn.Linear and module.weight.requires_grad and users[id(module.weight)] == 1:
                module.__class__ = AccumulatingLinear
                self._layers.append(module)  # type: ignore[arg-type]
        for layer in self._layers:
            layer.begun = self._begun
        self.products = 0

    def begin_pass(self) -> None:
        """Make the gradients, without content, in the first pass of a step; call it before every forward."""
        self._begun.fill_(self._passes > 0)
        self._passes += 1
        if self._passes == 1:
            _COUNTED.clear()
            for layer in self._layers:
                layer.into = layer.weight.grad = torch.empty_like(layer.weight)

    def end_step(self, *_: object) -> None:
        """Leave the gradients to the optimizer, before its step.

        Raises ConfigError where not every layer has added one product in each pass: its gradient would be wrong.
        """
        found, expected, self._passes = _COUNTED["products"], len(self._layers) * self._passes, 0
        for layer in self._layers:
            layer.into = None
        if found != expected and not isinstance(self._begun, FakeTensor):
            raise ConfigError(
                f"kernels.fused_accumulation=true: {found} products were added in a step and {expected} were expected, "
                "as this model does not run each linear layer once in each pass: set kernels.fused_accumulation=false"
            )
        self.products = found
