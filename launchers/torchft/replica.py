"""One replica: a whole model, its optimizer, and a step that counts where the group commits it."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from llmexp.launchers.data.packing import model_inputs
from llmexp.launchers.models import assembly
from llmexp.launchers.models.chunked_loss import chunks_that_ran
from llmexp.launchers.torchft.groups import ReplicaGroup
from llmexp.launchers.training.optimizer_state import moments
from llmexp.measure.batch import MicroBatch
from llmexp.record.what_ran import WhatRan
from llmexp.training.plan.training_plan import TrainingPlan


class Replica:
    """The training step of a replica, with the interface of `SteppingEngine`; `group` averages and commits."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        model = assembly.seeded_model(plan, device)
        self._precision = plan.config.precision
        self._model_class = assembly.class_name(model)
        self.module: Any = assembly.with_atoms(model, plan)
        self.optimizer = assembly.optimizer(plan, assembly.trained_groups(plan, self.module))
        self.vocab_size = int(self.module.config.vocab_size)
        self.trainable_parameters = sum(parameter.numel() for parameter in assembly.trained(self.module))
        self.parameters = plan.parameters or sum(parameter.numel() for parameter in self.module.parameters())
        self._accumulation, self._passes = plan.batch.accumulation, 0

    def join(self, group: ReplicaGroup) -> None:
        """Take the group that averages this replica's gradients, with the wrapper that it puts around the model."""
        self.group, self._model = group, group.wrapped(self.module)

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Return the next-token loss of one pass; the first pass of a step asks who takes part in it."""
        if self._passes == 0:
            self.group.begin()
        self._passes += 1
        self._model.require_backward_grad_sync = self._completes
        loss: torch.Tensor = self._model(**model_inputs(batch)).loss
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients of one pass; the last pass of a step averages them."""
        (loss / self._accumulation).backward()

    def step(self) -> None:
        """Update the parameters where the step is complete and the group commits it."""
        if not self._completes:
            return
        self._passes = 0
        if self.group.commits():
            self.optimizer.step()
        self.optimizer.zero_grad()

    def pass_alone(self, batch: MicroBatch) -> None:
        """Do a pass whose gradients are averaged with nobody and dropped, for a profiler."""
        self.module(**model_inputs(batch)).loss.backward()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        """Return all that training goes on from."""
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from another replica's state, or a checkpoint's."""
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def digest(self) -> str:
        """Return the SHA-256 of weights and moments, which replicas in step share to the last bit."""
        digest = hashlib.sha256()
        for tensor in [*self.module.parameters(), *moments(self.optimizer)]:
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """Return, by kind, the tensors that hold training state now."""
        parameters, held = list(self.module.parameters()), moments(self.optimizer)
        return {
            "parameters": [parameter.detach() for parameter in parameters],
            "gradients": [parameter.grad for parameter in parameters if parameter.grad is not None],
            "optimizer": held,
            "moments": held,
        }

    def gradient_norm(self) -> None:
        """Return None: no step takes it."""
        return

    def offloaded(self) -> frozenset[str]:
        """Return nothing: all state is on the device."""
        return frozenset()

    def what_ran(self) -> WhatRan:
        """Return the classes of model, wrapper and optimizer, how the group averages, and the loss's chunks."""
        return {
            "attention_implementation": self.module.config._attn_implementation,
            "model_class": self._model_class,
            "wrapper_class": assembly.class_name(self._model),
            **assembly.updated_by(self.optimizer),
            "engine_optimizer_class": assembly.class_name(self.optimizer),
            "backend": self.group.backend,
            "reduced_in": str(torch.bfloat16 if self._precision.gradients == "bf16" else torch.float32),
            "zero_stage": 0,
            **chunks_that_ran(self.module),
        }

    @property
    def _completes(self) -> bool:
        return self._passes == self._accumulation
