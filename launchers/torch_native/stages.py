"""A transformers model cut into the stages of a pipeline.

Each stage holds its decoder layers, under the names that they have in the whole model.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import PreTrainedModel

from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.weights import weights_of
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.training_plan import TrainingPlan


class Elsewhere(nn.Module):
    """A placeholder for a module that another stage holds; it returns its input."""

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the input unchanged."""
        return hidden_states


class Stage(nn.Module):
    """Stage `index` of a plan's model, seeded, on `device`, with the method's atoms."""

    def __init__(self, plan: TrainingPlan, index: int, device: torch.device) -> None:
        super().__init__()
        dims, method = plan.dims, assembly.method_of(plan)
        self.index, self.count = index, dims.pp * dims.virtual_stages
        with init_empty_weights(include_buffers=False):
            whole = assembly.unseeded_model(plan, device)
        source = weights_of(plan.config)(whole)
        self._cut(whole)
        self.model = building.materialize(whole, source, device, method.techniques.quantization)
        assembly.with_atoms(self.model, plan)
        assembly.compile_atom(self.model, method)

    @property
    def is_first(self) -> bool:
        """Say whether this stage takes token ids; other stages take hidden states."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """Say whether this stage gives logits; other stages give hidden states."""
        return self.index == self.count - 1

    def forward(self, received: torch.Tensor) -> torch.Tensor:
        """Compute hidden states, or the last stage's logits [micro, seq_len, vocab_size].

        `received` is ids [micro, seq_len] on the first stage, else hidden states [micro, seq_len, hidden_size].
        """
        taken = {"input_ids" if self.is_first else "inputs_embeds": received}
        given: torch.Tensor = self.model.lm_head(self.model.model(**taken).last_hidden_state)
        return given

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute the model's own loss for a pass through the last stage."""
        loss: torch.Tensor = self.model.loss_function(
            logits=logits, labels=labels, vocab_size=self.model.config.vocab_size
        )
        return loss

    def examples(self, micro: int, seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an example of the input and one of the output, without memory; torch takes their shapes from it."""
        config = self.model.config

        def floating(size: int) -> torch.Tensor:
            return torch.empty(micro, seq_len, size, dtype=config.dtype, device="meta", requires_grad=True)

        taken = (
            torch.empty(micro, seq_len, dtype=torch.int64, device="meta")
            if self.is_first
            else floating(config.hidden_size)
        )
        return taken, floating(config.vocab_size if self.is_last else config.hidden_size)

    def _cut(self, whole: PreTrainedModel) -> None:
        decoder = whole.model
        size = len(decoder.layers) // self.count
        _leave(decoder.layers, range(self.index * size, (self.index + 1) * size))
        if not self.is_first:
            decoder.embed_tokens = Elsewhere()
        if not self.is_last:
            decoder.norm, whole.lm_head = Elsewhere(), Elsewhere()


def _leave(layers: nn.ModuleList, kept: Container[int]) -> None:
    for index in range(len(layers)):
        if index not in kept:
            layers[index] = Elsewhere()


def stages_of_rank(dims: ParallelDims, rank: int) -> list[int]:
    """Return the stages of a rank of the pipeline, from 0: every pp-th one, or one of each arm of the V."""
    return (
        [rank, 2 * dims.pp - 1 - rank] if dims.v_shaped else list(range(rank, dims.pp * dims.virtual_stages, dims.pp))
    )
