"""A transformers model cut into the stages of a pipeline.

Each stage holds its decoder layers, under the names that they have in the whole model.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from transformers import PreTrainedModel

from llmexp.launchers.data.packing import targets_of_part
from llmexp.launchers.models import assembly, building
from llmexp.launchers.models.loss_in_chunks import Targets
from llmexp.launchers.models.weights import WeightSource, weights_of
from llmexp.launchers.torch_native.context_parallel import SharedSequences
from llmexp.launchers.torch_native.tensor_parallel import Sharers, materialize_parts
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.training_plan import TrainingPlan

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class Elsewhere(nn.Module):
    """A placeholder for a module that another stage holds; it returns its input."""

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the input unchanged."""
        return hidden_states


class Stage(nn.Module):
    """Stage `index` of a plan's model, seeded, on `device`, with the method's atoms.

    Where the plan says so, `ranks` cut its matrices and share out its experts, and it has `shared`, a part of every
    sequence.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        index: int,
        device: torch.device,
        ranks: Sharers,
        shared: SharedSequences | None = None,
    ) -> None:
        super().__init__()
        dims = plan.dims
        self.index, self.count = index, dims.pp * dims.virtual_stages
        self._dims, self._ranks, self._shared = dims, ranks, shared
        self._seq_len = plan.config.data.seq_len
        self._chunks_loss = plan.config.kernels.chunked_loss and self.is_last
        with init_empty_weights(include_buffers=False):
            whole = assembly.unseeded_model(plan, device)
        source = weights_of(plan.config)(whole)
        self.is_tied = bool(whole.config.tie_word_embeddings)
        if self.is_tied:
            source = _with_tied_head(source)
        self._cut(whole)
        self._fill(whole, source, plan, device)

    @property
    def is_first(self) -> bool:
        """Say whether this stage takes token ids; other stages take hidden states."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """Say whether this stage gives logits; other stages give hidden states."""
        return self.index == self.count - 1

    @property
    def tied(self) -> nn.Parameter | None:
        """The weight of tied embeddings on the two stages that have it; None on others, and without ties."""
        if not self.is_tied or not (self.is_first or self.is_last):
            return None
        return self.model.get_parameter(EMBEDDING if self.is_first else HEAD)

    def take_tied(self, weight: nn.Parameter) -> None:
        """Let the last stage's head use the weight of a first stage on this rank."""
        self.model.lm_head.weight = weight

    def forward(self, received: torch.Tensor) -> torch.Tensor:
        """Compute hidden states, or the last stage's logits [micro, seq_len, vocab_size], or this rank's part of them.

        A head that computes the loss in chunks takes the last stage's hidden states instead.
        `received` is ids [micro, seq_len] on the first stage, else hidden states [micro, seq_len, hidden_size].
        """
        taken = {"input_ids": received} if self.is_first else {"inputs_embeds": self._whole(received)}
        if self._shared:
            positions = torch.arange(self._seq_len, device=received.device)
            taken["position_ids"] = self._shared.part(positions.unsqueeze(0))
        hidden: torch.Tensor = self.model.model(**taken).last_hidden_state
        if self._chunks_loss:
            return hidden
        given = self.model.lm_head(hidden)
        return given.to_local() if isinstance(given, DTensor) else given

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute the model's own loss for a pass through the last stage, or this rank's share of it."""
        targets = targets_of_part(labels, self._shared.part) if self._shared else {"labels": labels}
        if self._chunks_loss:
            head: Any = self.model.lm_head
            of_hidden: torch.Tensor = head.loss(logits, Targets.of(**targets))
            return of_hidden
        if self._dims.tp > 1:
            logits = DTensor.from_local(logits, self._ranks.matrices, [Shard(-1)], run_check=False)
        loss = self.model.loss_function(logits=logits, vocab_size=self.model.config.vocab_size, **targets)
        return loss.to_local() if isinstance(loss, DTensor) else loss

    def examples(self, micro: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an example of the input and one of the output, without memory; torch takes their shapes from it."""
        config, positions = self.model.config, self._seq_len // self._dims.cp

        def floating(*sizes: int) -> torch.Tensor:
            return torch.empty(micro, *sizes, dtype=config.dtype, device="meta", requires_grad=True)

        between = floating(positions // (self._dims.tp if self._dims.sequence else 1), config.hidden_size)
        ids = torch.empty(micro, positions, dtype=torch.int64, device="meta")
        logits = floating(positions, config.vocab_size // self._dims.tp)
        return ids if self.is_first else between, logits if self.is_last and not self._chunks_loss else between

    def _fill(self, cut: PreTrainedModel, source: WeightSource, plan: TrainingPlan, device: torch.device) -> None:
        """Set `model`: the cut one with values and atoms."""
        if plan.dims.tp > 1 or plan.dims.ep > 1:
            self.model = materialize_parts(cut, source, plan, self._ranks, device)
            return
        method = assembly.method_of(plan)
        self.model = building.materialize(cut, source, device, method.techniques.quantization)
        assembly.with_atoms(self.model, plan, has_head=self.is_last)
        assembly.compile_atom(self.model, method)

    def _whole(self, received: torch.Tensor) -> torch.Tensor:
        """Return hidden states that have their whole length, from which transformers takes positions and masks."""
        if not self._dims.sequence:
            return received
        return DTensor.from_local(received, self._ranks.matrices, [Shard(1)], run_check=False)

    def _cut(self, whole: PreTrainedModel) -> None:
        decoder = whole.model
        size = len(decoder.layers) // self.count
        _leave(decoder.layers, range(self.index * size, (self.index + 1) * size))
        if not self.is_first:
            decoder.embed_tokens = Elsewhere()
        if not self.is_last:
            decoder.norm, whole.lm_head = Elsewhere(), Elsewhere()
        whole.config.tie_word_embeddings = False  # no stage has both ends, which transformers would tie


def _with_tied_head(source: WeightSource) -> WeightSource:
    """Return the source that fills the head with the embedding."""
    return lambda name, tensor: source(EMBEDDING if name == HEAD else name, tensor)


def _leave(layers: nn.ModuleList, kept: Container[int]) -> None:
    for index in range(len(layers)):
        if index not in kept:
            layers[index] = Elsewhere()


def stages_of_rank(dims: ParallelDims, rank: int) -> list[int]:
    """Return the stages of a rank of the pipeline, from 0: every pp-th one, or one of each arm of the V."""
    return (
        [rank, 2 * dims.pp - 1 - rank] if dims.v_shaped else list(range(rank, dims.pp * dims.virtual_stages, dims.pp))
    )
