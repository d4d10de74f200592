"""The bytes that an optimizer keeps for every parameter that it trains, computed without building anything."""

from __future__ import annotations

from llmexp.dtypes import bytes_of_moment
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.method import Techniques
from llmexp.training.config import AdamW, TrainingConfig
from llmexp.training.plan.share import shares_of
from llmexp.training.plan.trained import Trained


def moment_bytes(config: TrainingConfig, techniques: Techniques) -> float | None:
    """Return the bytes of moments per trained parameter; None where the optimizer or the shape is not known.

    The copy of the parameters that some engines update is not counted.
    """
    chosen = config.optimizer
    moments = chosen.moments if chosen.rest is None else _mean_of_two(config, techniques)
    if moments is None:
        return None
    size: float = moments * bytes_of_moment(chosen.moment_dtype or config.precision.moments)
    for share in shares_of(techniques):
        size = share.moments(size)
    if not chosen.factored:
        return size
    shape = shape_of(config.model)
    elements = factored_elements(shape, config, techniques) if shape else None
    return (
        None
        if shape is None or elements is None
        else size * elements / Trained.of(shape, techniques, config.adapter).trainable
    )


def _mean_of_two(config: TrainingConfig, techniques: Techniques) -> float | None:
    """Return the moments of a trained parameter where matrices of layers have one optimizer and the rest has AdamW."""
    shape, of_matrix = shape_of(config.model), config.optimizer.moments
    if shape is None or of_matrix is None:
        return None
    trainable = Trained.of(shape, techniques, config.adapter).trainable
    matrices = trainable if techniques.adapter else shape.linear_parameters
    return (of_matrix * matrices + AdamW.moments * (trainable - matrices)) / trainable


def factored_elements(shape: ModelShape, config: TrainingConfig, techniques: Techniques) -> int | None:
    """Count the rows and columns of all trained matrices and the elements of all trained vectors.

    An optimizer with factored moments keeps so many (arXiv 1804.04235, section 3). Return None for stacks of experts.
    """
    adapter = config.adapter
    if shape.num_experts:
        return None
    if techniques.adapter == "prompt":
        return adapter.virtual_tokens + shape.hidden_size
    if techniques.adapter == "lora":
        sides = [sum(shape.matrices[name]) for name in adapter.targets]
        return shape.num_layers * sum(each + 2 * adapter.rank for each in sides)
    matrices = 0 if techniques.quantization else shape.num_layers * sum(map(sum, shape.matrices.values()))
    return matrices + shape.embedding_sides + shape.norm_parameters
