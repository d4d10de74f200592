"""An optimizer of matrices alone, such as Muon, beside AdamW for all other parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from llmexp.errors import ConfigError
from llmexp.launchers.models.compiled import decoder_layers

Groups = list[dict[str, Any]]


class MatricesAndRest(torch.optim.Optimizer):
    """Two optimizers, which `make` and `make_rest` build of the first and of the second group.

    Groups and states are those of both: whoever changes one here changes it there.
    """

    def __init__(
        self,
        groups: Groups,
        make: Callable[[Groups], torch.optim.Optimizer],
        make_rest: Callable[[Groups], torch.optim.Optimizer],
    ) -> None:
        super().__init__([dict(group) for group in groups], {})
        self.parts = (make(groups[:1]), make_rest(groups[1:]))
        self.param_groups = [group for part in self.parts for group in part.param_groups]
        for part in self.parts:
            part.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the matrices, then the rest."""
        for part in self.parts:
            part.step()

    def updated(self) -> list[int]:
        """Return how many parameters each of the two has updated: those that it has a state of."""
        held = [[one for group in part.param_groups for one in group["params"]] for part in self.parts]
        return [sum(one.numel() for one in each if one in self.state) for each in held]


def matrices_and_rest(module: nn.Module, optimizer: str) -> Groups:
    """Return two groups of trained parameters: the matrices of decoder layers, and the rest.

    Raises ConfigError where layers train no matrices, or stacks of them: AdamW would update what the optimizer should.
    """
    layers = decoder_layers(cast(PreTrainedModel, module))
    trained = [one for one in module.parameters() if one.requires_grad]
    inside = {id(one) for layer in layers for one in layer.parameters()}
    matrices = [one for one in trained if id(one) in inside and one.dim() == 2]
    if not matrices or any(id(one) in inside and one.dim() > 2 and min(one.shape[1:]) > 1 for one in trained):
        kind = "trains stacks of them" if matrices else "trains none"
        raise ConfigError(
            f"optimizer={optimizer} updates matrices of decoder layers, and this model {kind}: set optimizer=adamw"
        )
    taken = {id(one) for one in matrices}
    return [{"params": matrices}, {"params": [one for one in trained if id(one) not in taken]}]
