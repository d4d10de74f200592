"""One rank of torch alone: build what plan.json says and run it."""

from __future__ import annotations

if __name__ == "__main__":
    from llmexp.launchers.starting import begin_imports, end_imports

    begin_imports()

import torch
from torch import distributed

from llmexp.launchers.fully_sharded import FullySharded
from llmexp.launchers.pipelined import PipelinedTraining
from llmexp.launchers.rank import Rank, device_of, main
from llmexp.launchers.replicated import Replicated
from llmexp.launchers.torch_state import TorchState
from llmexp.launchers.training import measure_training
from llmexp.measure.loop import MicroBatch
from llmexp.plan.run_plan import RunPlan
from llmexp.record.result import RankSummary


class TorchTraining(TorchState):
    """torch's own wrappers behind the measured loop's three calls."""

    layout: Replicated | FullySharded

    def __init__(self, plan: RunPlan, device: torch.device) -> None:
        super().__init__(plan, FullySharded(plan, device) if "fully_shard" in plan.engine_config else Replicated(plan, device))
        self._accumulation, self._passes = plan.batch.accumulation, 0

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Next-token loss of one pass."""
        self._passes += 1
        if self._accumulation > 1:
            self.layout.begin_pass(last=self._completes)
        loss: torch.Tensor = self.layout.model(input_ids=batch.input_ids, labels=batch.labels).loss
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of one pass, averaged over passes; over ranks where the pass completes a step or partitions them."""
        (loss / self._accumulation if self._accumulation > 1 else loss).backward()

    def step(self) -> None:
        """Update where the accumulation is complete."""
        if self._completes:
            self.layout.optimizer.step()
            self.layout.optimizer.zero_grad()

    @property
    def _completes(self) -> bool:
        return self._passes % self._accumulation == 0


def join(device: torch.device) -> None:
    """Meet the other ranks, over NCCL on GPUs and over Gloo on CPUs."""
    on_gpu = device.type == "cuda"
    distributed.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)


def build(plan: RunPlan, device: torch.device) -> TorchTraining | PipelinedTraining:
    """The training step, ready to run; after `join`."""
    return PipelinedTraining(plan, device) if plan.dims.pp > 1 else TorchTraining(plan, device)


def work(plan: RunPlan, rank: Rank) -> RankSummary:
    """Join the group, build, measure."""
    device = device_of(plan.config.hardware, rank.local_index)
    join(device)
    return measure_training(plan, rank, build(plan, device), device)


if __name__ == "__main__":
    end_imports()
    main(work)
