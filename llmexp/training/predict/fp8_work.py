"""The work of products in fp8: their FLOPs, and what torchao reads, writes and launches around them.

A matrix in 16 bits is read for its largest value, then read and written in 8 bits for each order in which products take
it. One scale of a whole matrix is found once. Scales of rows are found anew for each order.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.dtypes import bytes_of
from llmexp.inputs.shape import ModelShape
from llmexp.training.plan.float8 import MEGATRON, TRANSFORMER_ENGINE, multiplies_recipe
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.layers import Layers, slowest_stage

# Recipes whose kernels are counted, by torchao's and by TransformerEngine's engine.
_PROGRAMS = {"torch": ("tensorwise", "rowwise", "rowwise_with_gw_hp"), MEGATRON: TRANSFORMER_ENGINE}
# Inputs that several linear layers share are cast once where a compiler sees it (transformers' names).
_SAME_INPUT = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
# Kernels of one cast without a compiler, counted in torchao 0.18: absolute values, the largest, its scale in fp64, the
# product in fp32, its limits, fp8; scales of rows are rounded to powers of two besides.
_KERNELS, _KERNELS_OF_ROWS = 10, 13
# Of one product besides itself, the inverse scales; and copies in backward into the order that products take.
_KERNELS_OF_PRODUCT, _COPIES = 2, 3
# Those of a decoder layer's forward in 16 bits, whose host time is the launch_s of rates.
_KERNELS_OF_LAYER = 39
_SINGLE = 4


@dataclass(frozen=True)
class Fp8Work:
    """One rank's products in fp8 in one pass, and its casts."""

    fp8_flops: float
    """FLOPs of products in fp8 in forward."""
    fp8_narrow: float
    """How many times as narrow as measured ones these are."""
    weights_in_16_bits: float
    """Gradients of weights are not multiplied in fp8."""
    cast_bytes: float
    cast_bytes_behind: float
    """The same of backward."""
    cast_layers: float
    """Kernels of casts in forward, over those of a decoder layer's forward."""
    cast_layers_behind: float


@dataclass(frozen=True)
class _Elements:
    inputs: float
    weights: float
    results: float


@dataclass(frozen=True)
class _Sides:
    """Bytes for each element of inputs, weights and results, whose gradients are cast in backward."""

    inputs: float = 0.0
    weights: float = 0.0
    results: float = 0.0

    def of(self, elements: _Elements) -> float:
        found = self.inputs * elements.inputs + self.weights * elements.weights
        return found + self.results * elements.results


def emulated(plan: TrainingPlan) -> bool:
    """Tell whether a plan's products in fp8 are rounded only, and multiplied in other dtypes."""
    return plan.config.precision.linears is not None and not multiplies_recipe(plan.config)


def fp8_unpredicted(plan: TrainingPlan) -> str:
    """Say why products in fp8 have no known speed; empty where they have, or where there are none."""
    config, scaling = plan.config, plan.config.precision.scaling
    engine = config.engine.name
    reasons = {
        f"fp8 by engine={engine} is not predicted": engine not in _PROGRAMS,
        f"precision.scaling={scaling} is not predicted": scaling not in _PROGRAMS.get(engine, ()),
        "experts in fp8 are not predicted": getattr(config.model, "num_experts", None),
    }
    return next((reason for reason, is_so in reasons.items() if config.precision.linears and is_so), "")


def fp8_work_of(plan: TrainingPlan, layers: Layers, tokens: float) -> Fp8Work:
    """Return the work of a plan's products in fp8; nothing without precision.linears."""
    precision, shape, tp = plan.config.precision, layers.counted, plan.dims.tp
    if precision.linears is None or not isinstance(shape, ModelShape):
        return Fp8Work(0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    compiled, element = plan.techniques.compilation, bytes_of(precision.parameters)
    stage = slowest_stage(layers, plan.dims).share
    elements = _elements(shape, shape.num_layers * stage, tokens, tp, shared=compiled)
    forward, behind = (_compiled if compiled else _eager)(precision.scaling, element)
    launched = (0.0, 0.0) if compiled else _launched(precision.scaling, len(shape.matrices) * shape.num_layers * stage)
    return Fp8Work(
        fp8_flops=2.0 * tokens * layers.matrices / tp * stage,
        fp8_narrow=float(tp),
        weights_in_16_bits=float(precision.scaling == "rowwise_with_gw_hp"),
        cast_bytes=forward.of(elements),
        cast_bytes_behind=behind.of(elements),
        cast_layers=launched[0],
        cast_layers_behind=launched[1],
    )


def _elements(shape: ModelShape, layers: float, tokens: float, tp: int, *, shared: bool) -> _Elements:
    """Return the elements of so many layers; tensor parallelism cuts inputs or results of each layer, not both."""
    sides = shape.matrices
    inputs = sum(side[0] for name, side in sides.items() if not (shared and name in _SAME_INPUT))
    positions = tokens * layers * (1 + 1 / tp) / 2
    return _Elements(
        inputs=positions * inputs,
        weights=layers * sum(one * other for one, other in sides.values()) / tp,
        results=positions * sum(side[1] for side in sides.values()),
    )


def _compiled(scaling: str, element: int) -> tuple[_Sides, _Sides]:
    """Return forward and backward where a compiler fuses each cast with its transposition.

    Scales of rows are multiplied into gradients after their products, as torchao does.
    """
    largest, cast, scaled = element, element + 1, 2 * element
    forward = _Sides(inputs=largest + cast, weights=largest + cast)
    behind = {
        "tensorwise": _Sides(cast, cast, largest + 2 * cast),
        "rowwise": _Sides(largest + cast + scaled, largest + cast + scaled, 2 * (largest + cast)),
        "rowwise_with_gw_hp": _Sides(scaled, largest + cast, largest + cast),
    }
    return forward, behind[scaling]


def _eager(scaling: str, element: int) -> tuple[_Sides, _Sides]:
    """Return the same where each operation reads and writes memory: the scaled matrix and its limits are in fp32."""
    copied = 2
    cast = 2 * element + element + (element + _SINGLE) + 4 * _SINGLE + (_SINGLE + 1)
    # Scales of rows are a matrix in fp32, written and read.
    scaled = 2 * _SINGLE + 2 * element
    behind = {
        "tensorwise": _Sides(cast + copied, cast + copied, 2 * cast + copied),
        "rowwise": _Sides(cast + copied + scaled, cast + copied + scaled, 2 * cast + copied),
        "rowwise_with_gw_hp": _Sides(scaled, cast + copied, cast),
    }
    return _Sides(inputs=cast, weights=cast), behind[scaling]


def _launched(scaling: str, linears: float) -> tuple[float, float]:
    """Return the kernels of casts in forward and in backward, in layers."""
    one = _KERNELS if scaling == "tensorwise" else _KERNELS_OF_ROWS
    half = scaling == "rowwise_with_gw_hp"
    behind = (2 if half else 4) * one + (1 if half else 2) * _KERNELS_OF_PRODUCT + (1 if half else _COPIES)
    return (linears * (2 * one + _KERNELS_OF_PRODUCT) / _KERNELS_OF_LAYER, linears * behind / _KERNELS_OF_LAYER)
