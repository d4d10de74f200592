"""An optimizer, a model class and an atom's hook, for the ranks: with torch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from llmexp.extend import Techniques


# Named by `target` of conf/optimizer/sign.yaml, and called with the parameters, lr and `options`.
class SignDescent(torch.optim.Optimizer):
    """Each parameter moves by lr against the sign of its gradient, and shrinks by lr x decay of itself."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, decay: float) -> None:
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["decay"]).add_(parameter.grad.sign(), alpha=-group["lr"])


# Named by `target` of conf/model/capped.yaml: one of transformers' kind, built from the plan's sizes.
class CappedLlama(LlamaForCausalLM):
    """A Llama whose logits stay between -30 and 30."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.lm_head.register_forward_hook(lambda module, inputs, logits: 30 * torch.tanh(logits / 30))


# The atom's model_hook, in every rank, before the engine takes the model.
def freeze(model: nn.Module, techniques: Techniques) -> None:
    for name, parameter in model.named_parameters():
        if techniques.extra["outside_frozen"] in name:
            parameter.requires_grad_(False)
