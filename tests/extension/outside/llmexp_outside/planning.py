"""For the driver: without torch."""

from __future__ import annotations

from typing import Any

from llmexp.extend import Atom, DeepSpeedEngine, ParallelDims, Techniques, TrainingConfig

FROZEN_EMBEDDINGS = Atom(
    "E",
    "embeddings stay as they are, the rest trains",
    {"outside_frozen": "embed_tokens"},
    excludes=("Q",),
    model_hook="llmexp_outside.ranks.freeze",
)


class ClippingEngine(DeepSpeedEngine):
    """DeepSpeed with clipped gradients."""

    name = "clipping"

    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        clipping = 0.5 if "outside_frozen" in techniques.extra else 1.0
        return super().native_config(config, techniques, dims) | {"gradient_clipping": clipping}


CLIPPING = ClippingEngine()
