"""An atom, and an engine made of one of llmexp's, for the driver: without torch."""

from __future__ import annotations

from typing import Any

from llmexp.extend import Atom, DeepSpeedEngine, ParallelDims, Techniques, TrainingConfig

FROZEN_EMBEDDINGS = Atom(
    # Its code in method=E+Z2; the entry point's name counts.
    "E",
    # What `llmexp --help` says of it.
    "embeddings stay as they are, the rest trains",
    # What it sets: fields of Techniques, such as zero_stage, or names of your own, which go to Techniques.extra.
    {"outside_frozen": "embed_tokens"},
    # Atoms that it cannot stand beside; `needs` are those of which it needs one, `tasks` where it belongs.
    excludes=("Q",),
    # Called in every rank with the built model and the techniques, before the engine takes the model.
    model_hook="llmexp_outside.ranks.freeze",
)


class ClippingEngine(DeepSpeedEngine):
    """DeepSpeed with clipped gradients."""

    # As in its entry point and its YAML file; all else is as in DeepSpeed's.
    name = "clipping"

    # The configuration in the engine's own terms. An atom's own values are in `techniques.extra`.
    def native_config(self, config: TrainingConfig, techniques: Techniques, dims: ParallelDims) -> dict[str, Any]:
        clipping = 0.5 if "outside_frozen" in techniques.extra else 1.0
        return super().native_config(config, techniques, dims) | {"gradient_clipping": clipping}


CLIPPING = ClippingEngine()
