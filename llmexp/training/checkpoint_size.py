"""The bytes of a checkpoint from which a training can go on."""

from __future__ import annotations

from llmexp.dtypes import bytes_of
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.planning import training_engine


def checkpoint_bytes(plan: TrainingPlan) -> int | None:
    """Return the bytes that all ranks together write; None where the optimizer or the model tells none.

    Trained parameters, the copy of them that the optimizer updates, and its moments are written once, however many
    ranks hold the same. Frozen parameters are in the checkpoint that the training began with.
    """
    config, moments = plan.config, plan.optimizer_state_bytes_per_parameter
    if plan.trainable_parameters is None or moments is None:
        return None
    has_copy = training_engine(config).keeps_master_copy(config, plan.techniques)
    size = bytes_of(config.precision.parameters) + has_copy * bytes_of(config.precision.master) + moments
    return round(plan.trainable_parameters * size)
