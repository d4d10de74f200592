"""A worker (in_turn.py): the FLOPs that torch counts in one step of each plan, and what its passes say of it."""

from __future__ import annotations

from math import prod
from typing import Any

import stepping
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from llmexp.measure.loop import train_step
from llmexp.training.plan.training_plan import TrainingPlan


def observe(plan: TrainingPlan, training: Any, device: torch.device) -> dict[str, Any]:
    passes = next(stepping.batches_of(plan, training, 1, device))
    with FlopCounterMode(display=False, custom_mapping=uncounted()) as counter:
        train_step(training, passes, lambda _: None)
    return {
        "flops": counter.get_total_flops(),
        "positions": sum(batch.positions for batch in passes),
        "bounded_squares": sum(batch.bounded_squares for batch in passes),
    }


def uncounted() -> dict[Any, Any]:
    """Operators of the CPU that torch's counter does not know.

    It counts both halves of them, as of its own flash attention.
    """
    known: dict[Any, Any] = {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *_, **__: sdpa_flop_count(
            query, key, value
        ),
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: (
            sdpa_backward_flop_count(*shapes[:4])
        ),
        torch.ops.aten._grouped_mm: lambda rows, columns, *_, **__: 2 * prod(rows) * columns[-1],
    }
    if hasattr(torch.ops.bitsandbytes, "gemm_4bit"):
        known[torch.ops.bitsandbytes.gemm_4bit] = lambda inputs, _, weight, *__, **___: 2 * prod(inputs) * weight[0]
    return known
