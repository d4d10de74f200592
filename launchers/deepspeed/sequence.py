"""DeepSpeed's Ulysses with a transformers model.

Each rank has a part of every sequence, and inside attention all positions of some heads.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from deepspeed.runtime.sequence_parallel import parallel_state_sp
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
from torch import distributed
from transformers import AttentionInterface, PreTrainedConfig

from llmexp.launchers.attention.choice import ULYSSES, of_whole_sequences
from llmexp.launchers.data.packing import inputs_of_part, model_inputs
from llmexp.launchers.models import building
from llmexp.measure.batch import MicroBatch
from llmexp.method import Method
from llmexp.training.plan.training_plan import TrainingPlan


class WholeSequences:
    """The sequences of a replica with one rank, which are whole."""

    groups = None

    def inputs(self, batch: MicroBatch) -> dict[str, Any]:
        """Return the keyword arguments for the model."""
        return model_inputs(batch)

    def loss_of_replica(self, own: torch.Tensor) -> torch.Tensor:
        """Return the rank's own loss, which is that of the replica."""
        return own

    def reduces_in_fp32(self, zero_stage: int) -> bool:
        """Return False: gradients are reduced in the dtype that the configuration names."""
        return False


class CutSequences:
    """The sequences of a replica whose neighboring ranks share them; each rank has one part, in order."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.groups = _groups(plan.dims.cp)
        self._group = self.groups.get_sequence_parallel_group()
        zero = plan.engine_config["zero_optimization"]
        # Stage 3 with reduce_scatter averages gradients over the ranks of a sequence too (0.19.8, __avg_scatter_grads);
        # Adam would hide this error.
        self._weight = plan.dims.cp if zero["stage"] == 3 and zero.get("reduce_scatter", True) else 1
        core = of_whole_sequences(Method.parse(plan.method, plan.config.task.name).techniques)
        AttentionInterface.register(
            ULYSSES, _exchanging(core, building.configuration(plan.config.model), plan.batch.micro, self._group)
        )

    def inputs(self, batch: MicroBatch) -> dict[str, Any]:
        """Return the keyword arguments for this rank's part of the sequences."""
        return inputs_of_part(batch, self._part)

    def loss_of_replica(self, own: torch.Tensor) -> torch.Tensor:
        """Return the replica's loss as value, with the gradient of the rank's own part.

        DeepSpeed sums gradients over the ranks that share a sequence.
        """
        whole, own = own.detach().clone(), own * self._weight
        distributed.all_reduce(whole, group=self._group)
        return own + (whole - own.detach())

    def reduces_in_fp32(self, zero_stage: int) -> bool:
        """Say whether gradients are reduced in fp32: stages 1 and 2 do so whatever their configuration says.

        Source: DeepSpeed 0.19.8, allreduce_bucket of stage_1_and_2.py.
        """
        return zero_stage in (1, 2)

    def _part(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.chunk(self._group.size(), dim=1)[self._group.rank()].contiguous()


@cache
def _groups(cp: int) -> Any:
    """Return DeepSpeed's module of process groups, which can be set up only once in a process."""
    parallel_state_sp.initialize_sequence_parallel(cp)
    return parallel_state_sp


def _exchanging(
    core: Any, shape: PreTrainedConfig, micro: int, group: distributed.ProcessGroup
) -> UlyssesSPAttentionHF:
    return UlyssesSPAttentionHF(
        attn=core,
        batch_size=micro,
        attn_head_count=shape.num_attention_heads,
        attn_head_size=getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads,
        kv_head_count=shape.num_key_value_heads,
        num_hidden_layers=shape.num_hidden_layers,
        process_group=group,
        seq_length_is_variable=True,
    )
