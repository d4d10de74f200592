"""What a rank of the engine does: it builds what the plan says. Measuring it is llmexp's."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn

from llmexp.extend import TrainingPlan
from llmexp.extend_ranks import (
    MicroBatch,
    class_name,
    first_gradient_norm,
    join_group,
    model_inputs,
    moments,
    optimizer,
    run_rank,
    seeded_model,
    trained,
    with_atoms,
)


class Averaging:
    """A training step in three calls, once for each pass, and a view of its state."""

    def __init__(self, plan: TrainingPlan, device: torch.device) -> None:
        # The plan's model with the seed's weights, the same on every rank; then its atoms, hooks of packages too.
        self.module: nn.Module = with_atoms(seeded_model(plan, device), plan)
        self._optimizer = optimizer(plan, trained(self.module))
        self._ranks, self._flatten = plan.processes, plan.engine_config["flatten"]
        self._accumulation, self._passes = plan.batch.accumulation, 0
        # The data's tokens are below vocab_size; both counts go to the result, the first one to MFU.
        self.vocab_size = int(self.module.config.vocab_size)
        self.parameters = sum(parameter.numel() for parameter in self.module.parameters())
        self.trainable_parameters = sum(parameter.numel() for parameter in trained(self.module))

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """Return the loss of one pass, a scalar on the device."""
        loss: torch.Tensor = self.module(**model_inputs(batch)).loss
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients of one pass; after the last one average them over the ranks."""
        (loss / self._accumulation).backward()
        self._passes += 1
        if self._is_complete and self._ranks > 1:
            gradients = [parameter.grad for parameter in trained(self.module) if parameter.grad is not None]
            for part in self._together(gradients):
                distributed.all_reduce(part.div_(self._ranks))

    def step(self) -> None:
        """Update the parameters where this pass completes a step."""
        if self._is_complete:
            self._optimizer.step()
            self._optimizer.zero_grad()

    # The largest of what these hold, by kind, is measured in the first step and compared with the plan's memory.
    def state_tensors(self) -> dict[str, list[torch.Tensor]]:
        """Return, by kind, the tensors that hold training state now."""
        parameters, held = list(self.module.parameters()), moments(self._optimizer)
        return {
            "parameters": [parameter.detach() for parameter in parameters],
            "gradients": [parameter.grad for parameter in parameters if parameter.grad is not None],
            "optimizer": held,
            "moments": held,
        }

    # By this and the losses `compare` tells whether two runs did the same training.
    def gradient_norm(self) -> float | None:
        """Return the norm of the first step's gradient."""
        return first_gradient_norm(self._optimizer, self.trainable_parameters)

    def offloaded(self) -> frozenset[str]:
        """Return the kinds of state that are kept on the host to save the device's memory: none."""
        return frozenset()

    # What ran is what is recorded: say what was made, not what was asked for.
    def what_ran(self) -> dict[str, Any]:
        """Return the classes and the backend."""
        return {
            "model_class": class_name(self.module),
            "optimizer_class": class_name(self._optimizer),
            "backend": distributed.get_backend(),
        }

    @property
    def _is_complete(self) -> bool:
        return self._passes % self._accumulation == 0

    def _together(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Let the gradients lie in one tensor, so that one collective averages all of them."""
        if not self._flatten:
            return gradients
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        parts = flat.split([gradient.numel() for gradient in gradients])
        for parameter, part in zip((one for one in trained(self.module) if one.grad is not None), parts, strict=True):
            parameter.grad = part.view_as(parameter)
        return [flat]


if __name__ == "__main__":
    # `join_group` meets the other ranks by torch.distributed; the second function builds what is measured.
    run_rank(join_group, Averaging)
else:
    # engine.launcher=fork imports this module once, and calls these in every rank.
    join, build = join_group, Averaging
