"""What a training computes otherwise than in full precision and with every parameter."""

from __future__ import annotations

from collections.abc import Sequence

from llmexp.training.plan.training_plan import TrainingPlan


def changes_of(plan: TrainingPlan) -> Sequence[str]:
    """Return what may change the loss at equal tokens, in a few words each; empty for the plain training."""
    techniques, precision = plan.techniques, plan.config.precision
    changes = {
        "4-bit weights": techniques.quantization is not None,
        "adapters only": techniques.adapter is not None,
        "bf16 without fp32 copy": precision.parameters == precision.master == "bf16",
        "fp16 with a scaled loss": precision.scales_loss,
        "fp8 products": precision.linears is not None,
        "rounded weights": precision.qat is not None,
        "8-bit moments": getattr(plan.config.optimizer, "moment_dtype", None) == "int8",
    }
    return [words for words, holds in changes.items() if holds]
