"""The bytes that an optimizer keeps for every parameter that it trains, computed without building anything."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from llmexp.dtypes import SINGLE, bytes_of_moment
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.method import Techniques
from llmexp.training.config import AdamW, TrainingConfig
from llmexp.training.plan.share import shares_of
from llmexp.training.plan.trained import Trained

# bitsandbytes keeps moments in 8 bits from so many elements of a tensor on, and in fp32 below (0.50, min_8bit_size).
EIGHT_BITS, SMALL = "int8", 4096


def moment_bytes(config: TrainingConfig, techniques: Techniques) -> float | None:
    """Return the bytes of moments per trained parameter; None where the optimizer or the shape is not known.

    The copy of the parameters that some engines update is not counted.
    """
    chosen = config.optimizer
    moments = chosen.moments if chosen.rest is None else _mean_of_two(config, techniques)
    preconditioners = _preconditioners(config, techniques)
    if moments is None or preconditioners is None:
        return None
    size: float = (moments + preconditioners) * bytes_of_moment(chosen.moment_dtype or config.precision.moments)
    size += _of_small_tensors(config, techniques)
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


def _of_small_tensors(config: TrainingConfig, techniques: Techniques) -> float:
    """Return how many bytes more a trained parameter has because moments of small tensors are not in 8 bits.

    DeepSpeed's partitions are flat pieces of many tensors, none of them small.
    """
    chosen, shape = config.optimizer, shape_of(config.model)
    is_flat = config.engine.name == "deepspeed" and techniques.zero_stage > 0
    if chosen.moment_dtype != EIGHT_BITS or not chosen.moments or is_flat or shape is None:
        return 0.0
    gains = [] if techniques.adapter else [shape.hidden_size] * (2 * shape.num_layers + 1)
    gains += [shape.head_dim] * (2 * shape.num_layers * shape.qk_norm * (techniques.adapter is None))
    matrices = _sizes_beside_experts(shape, config, techniques)
    small = sum(size for size in (*gains, *matrices) if size < SMALL)
    more = bytes_of_moment(SINGLE) - bytes_of_moment(EIGHT_BITS)
    return chosen.moments * more * small / Trained.of(shape, techniques, config.adapter).trainable


def _sizes_beside_experts(shape: ModelShape, config: TrainingConfig, techniques: Techniques) -> list[int]:
    """Return the elements of each matrix that trains, but of stacks of experts, which are never small."""
    if techniques.adapter or techniques.quantization:
        return [*map(prod, _trained_matrices(replace(shape, num_experts=None), config, techniques) or ())]
    queries, keys, values, out, gate, up, down = map(prod, shape.matrices.values())
    fused = config.kernels.fused_projections
    layer = [queries + keys + values, out] if fused else [queries, keys, values, out]
    if shape.num_experts:
        layer += [shape.hidden_size * shape.num_experts]
    else:
        layer += [gate + up, down] if fused else [gate, up, down]
    return layer * shape.num_layers + [shape.vocab_size * shape.hidden_size]


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
    matrices = _trained_matrices(shape, config, techniques)
    vectors = 0 if techniques.adapter else shape.norm_parameters
    return None if matrices is None else sum(map(sum, matrices)) + vectors


def _preconditioners(config: TrainingConfig, techniques: Techniques) -> float | None:
    """Return the elements of preconditioners and of their eigenbases per trained parameter.

    Each side of a matrix has one of both (arXiv 2409.11321, algorithm 3), unless it is longer than the optimizer takes.
    """
    shape, longest = shape_of(config.model), config.optimizer.preconditioned_side
    if longest is None:
        return 0.0
    matrices = _trained_matrices(shape, config, techniques) if shape else None
    if shape is None or matrices is None:
        return None
    squares = sum(side**2 for sides in matrices for side in sides if side <= longest)
    return 2 * squares / Trained.of(shape, techniques, config.adapter).trainable


def _trained_matrices(
    shape: ModelShape, config: TrainingConfig, techniques: Techniques
) -> list[tuple[int, int]] | None:
    """Return the sides of each matrix that trains; None for stacks of experts."""
    adapter = config.adapter
    if shape.num_experts:
        return None
    if techniques.adapter == "prompt":
        return [(adapter.virtual_tokens, shape.hidden_size)]
    if techniques.adapter == "lora":
        targets = [shape.matrices[name] for name in adapter.targets]
        low = [sides for inputs, outputs in targets for sides in ((adapter.rank, inputs), (outputs, adapter.rank))]
        return low * shape.num_layers
    of_layers = [] if techniques.quantization else list(shape.matrices.values()) * shape.num_layers
    return of_layers + [(shape.vocab_size, shape.hidden_size)] * (1 if shape.tie_embeddings else 2)
