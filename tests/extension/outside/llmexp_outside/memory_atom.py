"""An atom that changes a run's memory and FLOPs, for the driver: what it does, and its share of the arithmetic."""

from __future__ import annotations

from dataclasses import replace

from llmexp.extend import Activations, AdapterConfig, Atom, Computed, Formula, ModelShape, Share, Trained

PART = 2


class LowerHalf(Share):
    """Embedding and the lower half of the layers are frozen, so that backward ends above them."""

    words = "the lower half of the layers keeps no activations"

    def trained(self, made: Trained, shape: ModelShape, adapter: AdapterConfig) -> Trained:
        frozen = shape.linear_parameters // PART
        norms = (shape.norm_parameters - shape.hidden_size) // PART
        still = shape.embedding_parameters + frozen + norms
        return replace(made, trainable=made.trainable - still, frozen=made.frozen + still, frozen_matrices=frozen)

    def activations(self, made: Activations, formula: Formula) -> Activations:
        head = formula.head()[0] + formula.mask()
        return replace(made, kept=round((made.kept - head) / PART + head))

    def computed(self, made: Computed, shape: ModelShape) -> Computed:
        """Leave out what backward does not reach: of frozen matrices the gradients of their inputs."""
        return made.model_copy(
            update={
                "per_position": made.per_position - 2.0 * shape.active_linear_parameters / PART,
                "fused_per_square": made.fused_per_square * (1 - 5 / 7 / PART),
                "unfused_per_square": made.unfused_per_square * (1 - 4 / 6 / PART),
            }
        )


LOWER_HALF = LowerHalf()
HALF = Atom(
    "H",
    "the embedding and the lower half of the layers stay as they are",
    {},
    excludes=("Q", "L", "QL", "P"),
    model_hook="llmexp_outside.memory_ranks.freeze_lower_half",
    share="llmexp_outside.memory_atom:LOWER_HALF",
)
