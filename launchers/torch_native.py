"""One rank of torch alone: build what plan.json says and run it."""

from __future__ import annotations

from typing import Any

if __name__ == "__main__":
    from llmexp.launchers.starting import begin_imports, end_imports

    begin_imports()

import torch
from torch import distributed

from llmexp.launchers import assembly
from llmexp.launchers.fully_sharded import FullySharded
from llmexp.launchers.optimizer_state import local, moments, not_of
from llmexp.launchers.quantize import quantized_tensors
from llmexp.launchers.rank import Rank, device_of, main
from llmexp.launchers.replicated import Replicated
from llmexp.launchers.training import measure_training
from llmexp.measure.loop import MicroBatch
from llmexp.plan.run_plan import RunPlan
from llmexp.record.result import RankSummary


class TorchTraining:
    """torch's own wrappers behind the measured loop's three calls, with a look at what they hold."""

    def __init__(self, plan: RunPlan, device: torch.device) -> None:
        self._stage = assembly.method_of(plan).techniques.zero_stage
        self.layout = FullySharded(plan, device) if "fully_shard" in plan.engine_config else Replicated(plan, device)
        self.module = self.layout.module
        self.vocab_size = int(self.module.config.vocab_size)
        self._accumulation, self._passes = plan.batch.accumulation, 0
        self.trainable_parameters = sum(parameter.numel() for parameter in assembly.trained(self.module))
        self.parameters = plan.parameters or sum(parameter.numel() for parameter in self.module.parameters())

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

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """See TrainingEngine."""
        parameters, holder = list(self.module.parameters()), self._base_optimizer
        updated = [parameter for group in holder.param_groups for parameter in group["params"]]
        return {
            "parameters": [local(parameter) for parameter in parameters] + quantized_tensors(self.module),
            "gradients": [local(parameter.grad) for parameter in parameters if parameter.grad is not None],
            "optimizer": not_of(self.module, updated) + moments(holder),
        }

    def offloaded(self) -> frozenset[str]:
        """See TrainingEngine."""
        return frozenset({"parameters", "gradients", "optimizer"} if self.layout.offloads else ())

    def what_ran(self) -> dict[str, Any]:
        """See TrainingEngine."""
        return {
            "attention_implementation": self.module.config._attn_implementation,
            "model_class": self.layout.model_class,
            "wrapper_class": assembly.class_name(self.layout.model),
            "optimizer_class": assembly.class_name(self._base_optimizer),
            "engine_optimizer_class": assembly.class_name(self.layout.optimizer),
            "backend": distributed.get_backend(),
            "reduced_in": str(self.layout.reduced_in),
            "zero_stage": self._stage,
        }

    @property
    def _completes(self) -> bool:
        return self._passes % self._accumulation == 0

    @property
    def _base_optimizer(self) -> torch.optim.Optimizer:
        """The one that holds the moments: ZeroRedundancyOptimizer has it as `optim`, MasterCopy as `inner`."""
        optimizer: torch.optim.Optimizer = getattr(self.layout.optimizer, "optim", self.layout.optimizer)
        return getattr(optimizer, "inner", optimizer)


def join(device: torch.device) -> None:
    """Meet the other ranks, over NCCL on GPUs and over Gloo on CPUs."""
    on_gpu = device.type == "cuda"
    distributed.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)


def build(plan: RunPlan, device: torch.device) -> TorchTraining:
    """The training step, ready to run; after `join`."""
    return TorchTraining(plan, device)


def work(plan: RunPlan, rank: Rank) -> RankSummary:
    """Join the group, build, measure."""
    device = device_of(plan.config.hardware, rank.local_index)
    join(device)
    return measure_training(plan, rank, build(plan, device), device)


if __name__ == "__main__":
    end_imports()
    main(work)
