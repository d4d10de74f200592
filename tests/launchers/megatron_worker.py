"""A worker (in_turn.py): what the megatron-core loop did of each plan, its gradient norms too."""

from __future__ import annotations

from typing import Any

import scheduled
import torch
from megatron.core import optimizer, parallel_state

from llmexp.training.plan.training_plan import TrainingPlan


class FusedAdam:
    """Stands where Megatron puts TransformerEngine's optimizer, as though that were installed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise AssertionError("AdamW is torch's, whatever is installed")


optimizer.Adam, optimizer.USING_PYTORCH_OPTIMIZER = FusedAdam, False


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    norms, positions = [], set()
    update = training.optimizer.step

    def step() -> Any:
        training.optimizer.prepare_grads()
        norms.append(float(training.optimizer.get_grad_norm()))
        return update()

    training.optimizer.step = step
    blocks = [layer for stage in training.stages for layer in stage.module.decoder.layers]
    for block in blocks:
        block.self_attention.core_attention.register_forward_pre_hook(
            lambda _, inputs: positions.add(inputs[0].shape[0])
        )
    seen = scheduled.train(training, [block.mlp for block in blocks], plan, device)
    return seen | {
        "gradient_norms": norms,
        "positions": sorted(positions),
        "replica": parallel_state.get_data_parallel_rank(),
    }
