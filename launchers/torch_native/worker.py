"""The program of one rank of torch alone: it builds what plan.json says and runs it."""

from __future__ import annotations

if __name__ == "__main__":
    from llmexp.launchers.rank.starting import begin_imports, end_imports

    begin_imports()

from contextlib import nullcontext

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from llmexp.launchers.data.packing import model_inputs
from llmexp.launchers.models.chunked_loss import chunks_that_ran
from llmexp.launchers.models.keeping import results_that_were_kept
from llmexp.launchers.rank.frame import join_group
from llmexp.launchers.torch_native.context_parallel import SharedSequences
from llmexp.launchers.torch_native.expert_parallel import ExpertParallel
from llmexp.launchers.torch_native.fully_sharded import FullySharded
from llmexp.launchers.torch_native.pipelined import Pipelined, PipelinedTraining
from llmexp.launchers.torch_native.replicated import Replicated
from llmexp.launchers.torch_native.sharded_stages import ShardedPipeline
from llmexp.launchers.torch_native.shared_experts import exchanged_tokens
from llmexp.launchers.torch_native.state import TorchState
from llmexp.launchers.torch_native.tensor_parallel import TensorParallel
from llmexp.launchers.training.activations import around_forward, moved
from llmexp.launchers.training.measuring import run_rank
from llmexp.measure.batch import MicroBatch
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan


class TorchTraining(TorchState):
    """torch's own wrappers with the measured loop's three calls."""

    layout: Replicated | FullySharded | TensorParallel | ExpertParallel

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        self._shared = SharedSequences(plan, device) if plan.dims.cp > 1 else None
        super().__init__(plan, _layout(plan)(plan, device))
        self._around_loss = loss_parallel if plan.dims.tp > 1 else nullcontext
        self._accumulation, self._passes = plan.batch.accumulation, 0
        self._around_forward = around_forward(plan, self.module, device)

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Return the next-token loss of one pass."""
        self._passes += 1
        if self._accumulation > 1:
            self.layout.begin_pass(last=self._completes)
        inputs = self._shared.inputs(batch) if self._shared else model_inputs(batch)
        with self._around_forward, self._around_loss():
            loss: torch.Tensor = self.layout.model(**inputs).loss
        own = loss.to_local() if isinstance(loss, DTensor) else loss
        return self._shared.loss_of_replica(own) if self._shared else own

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients of one pass, averaged over passes.

        They are averaged over ranks where the pass completes a step or partitions them.
        """
        share = loss / self._accumulation if self._accumulation > 1 else loss
        with self._around_loss():
            (share * self.loss_scale.factor if self.loss_scale else share).backward()
        if self._completes and isinstance(self.layout, TensorParallel | ExpertParallel):
            self.layout.average()

    def step(self) -> None:
        """Update the parameters where the accumulation is complete."""
        if self._completes:
            self.update()

    def what_ran(self) -> WhatRan:
        """Return what any layout says, how many bytes went to the host, and how many products added to gradients."""
        added: WhatRan = self.layout.accumulated if isinstance(self.layout, Replicated) else {}
        added |= chunks_that_ran(self.module) | results_that_were_kept(self.module) | exchanged_tokens(self.module)
        return super().what_ran() | moved(self._around_forward) | added

    @property
    def _completes(self) -> bool:
        return self._passes % self._accumulation == 0


def _layout(plan: TrainingPlan) -> type[Replicated | FullySharded | TensorParallel | ExpertParallel]:
    if "fully_shard" in plan.engine_config:
        return FullySharded
    if plan.dims.ep > 1:
        return ExpertParallel
    return TensorParallel if plan.dims.tp > 1 else Replicated


class FusedBackwardTraining(TorchTraining):
    """Training with an optimizer that updates in backward and has nothing to do after it."""

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients of the pass; each is averaged over ranks and used as soon as it exists."""
        (rate,) = {group["lr"] for group in self.layout.optimizer.param_groups}
        self.layout.optimizer.fused_backward(loss, rate)  # type: ignore[attr-defined]

    def step(self) -> None:
        """Do nothing: backward has updated the parameters."""


join = join_group


def build(plan: TrainingPlan, device: torch.device) -> TorchTraining | PipelinedTraining:
    """Build the training step, ready to run; call `join` first."""
    if plan.dims.pp > 1:
        return PipelinedTraining(plan, device, ShardedPipeline if "fully_shard" in plan.engine_config else Pipelined)
    return (FusedBackwardTraining if plan.config.optimizer.fused_backward else TorchTraining)(plan, device)


if __name__ == "__main__":
    end_imports()
    run_rank(join, build)
