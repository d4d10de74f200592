"""The work of layers in fp8 by TransformerEngine: the products, and what every kernel beside them reads and writes.

Kernels around products are those of TransformerEngine 2.20 (pytorch/module/layernorm_linear.py, linear.py, base.py;
csrc/extensions/normalization.cpp, csrc/quantizer.cpp), others those of megatron-core 0.16 (fusions/,
transformer/attention.py). Nothing is fitted: all stream through memory as the fused update does.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.inputs.shape import ModelShape
from llmexp.training.plan.float8 import BLOCKS, DELAYED, TENSORWISE, has_orders, kept_bytes
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.fp8_work import Fp8Work
from llmexp.training.predict.layers import Layers, slowest_stage

# The width of the measured products whose rows at half speed are known (rates.py has the source).
_MEASURED_WIDE = 8192
_BF16 = 2
# Of a residual: both summands read, the sum written. Gradients of the two branches are added alike.
_ADDED = 3 * _BF16
# Backward of a norm reads its input and a gradient, and writes one.
_NORM_BEHIND = 3 * _BF16
# SwiGLU reads gate and up, and writes their product; backward reads both and a gradient, and writes two.
_GATED, _GATED_BEHIND = 3 * _BF16, 5 * _BF16
# What is copied is read and written: turned queries and keys, and queries out of the product with keys and values.
_COPIED = 2 * _BF16
# The loss reads each logit in forward; backward reads it and writes a gradient (common/triton/cross_entropy.py).
_LOSS, _LOSS_BEHIND = _BF16, 2 * _BF16


@dataclass(frozen=True)
class _Recipe:
    """Bytes of an element that a cast reads and writes."""

    found: float
    """Read to find the largest before the cast reads again; scales of earlier steps and of blocks need none."""
    row: float
    """Written in the order of forward's product."""
    column: float
    """Written in the order of gradients of weights, where that is another."""
    norm_casts: bool
    """Norms write fp8 themselves."""
    gathers_columns: bool
    """Elements travel in both orders; others are turned once they are there."""

    @classmethod
    def of(cls, plan: TrainingPlan) -> _Recipe:
        """Return the recipe of a plan on its hardware."""
        scaling, bytes_each, orders = plan.config.precision.scaling, kept_bytes(plan.config), has_orders(plan.config)
        return cls(
            found=_BF16 * (scaling == TENSORWISE),
            row=bytes_each,
            column=bytes_each * orders,
            norm_casts=scaling == DELAYED,
            gathers_columns=scaling in BLOCKS,
        )

    def cast(self, *, columns: bool) -> float:
        """Return the bytes of an element that is in memory in 16 bits."""
        return self.found + _BF16 + self.row + self.column * columns

    def norm(self, *, columns: bool) -> float:
        """Return the bytes of a norm and the cast of its result; it finds the largest on its way."""
        kept = self.column * columns
        if self.norm_casts:
            return _BF16 + self.row + 2 * kept
        return 2 * _BF16 + _BF16 + self.row + kept

    @property
    def turned(self) -> float:
        """The bytes of an element that other ranks sent, until it is in the order of gradients of weights."""
        return 0 if self.gathers_columns else 2 * self.column


@dataclass(frozen=True)
class _Sizes:
    """Elements of a token in one layer on a rank."""

    here: float
    """Of the hidden state, of which sequence parallelism leaves each rank a part."""
    gathered: float
    """Of the same after others have sent theirs; nothing without sequence parallelism."""
    queries: float
    keys: float
    wide: float

    @classmethod
    def of(cls, plan: TrainingPlan, shape: ModelShape) -> _Sizes:
        tp, sequence = plan.dims.tp, plan.dims.sequence
        return cls(
            here=shape.hidden_size / (tp if sequence else 1),
            gathered=shape.hidden_size * sequence,
            queries=shape.num_heads * shape.head_dim / tp,
            keys=shape.num_kv_heads * shape.head_dim / tp,
            wide=shape.intermediate_size / tp,
        )


def engine_fp8_of(plan: TrainingPlan, layers: Layers, tokens: float, *, trains: bool) -> Fp8Work:
    """Return the work of dense layers in fp8 in one pass; frozen weights need no matrix in the order of gradients."""
    shape, tp, stage = layers.counted, plan.dims.tp, slowest_stage(layers, plan.dims)
    assert isinstance(shape, ModelShape)
    recipe, sizes = _Recipe.of(plan), _Sizes.of(plan, shape)
    of_layers = tokens * shape.num_layers * stage.share
    logits = tokens * shape.vocab_size / tp * stage.head
    # Weights are cast by the first pass of a step.
    weights = recipe.cast(columns=True) * layers.matrices / tp * stage.share / plan.batch.accumulation
    return Fp8Work(
        fp8_flops=2.0 * tokens * layers.matrices / tp * stage.share,
        fp8_narrow=_narrow(shape, tp),
        weights_in_16_bits=0.0,
        cast_bytes=of_layers * _forward(recipe, sizes, columns=trains) + logits * _LOSS + weights,
        cast_bytes_behind=of_layers * _behind(recipe, sizes, columns=trains) + logits * _LOSS_BEHIND,
        # Fused kernels and their casts are fewer than the kernels of a layer in 16 bits, which count anyway.
        cast_layers=0.0,
        cast_layers_behind=0.0,
    )


def _forward(recipe: _Recipe, sizes: _Sizes, *, columns: bool) -> float:
    """Return the bytes of a token in a layer: norms, turned and copied queries, residuals, the MLP's gate, casts."""
    kept = columns and (recipe.gathers_columns or not sizes.gathered)
    norms = 2 * recipe.norm(columns=kept) * sizes.here
    copied = _COPIED * (2 * sizes.queries + sizes.keys)
    casts = recipe.cast(columns=columns) * (sizes.queries + sizes.wide)
    return norms + copied + 2 * _ADDED * sizes.here + _GATED * sizes.wide + casts


def _behind(recipe: _Recipe, sizes: _Sizes, *, columns: bool) -> float:
    """Return the same of backward, where gradients of results are cast, and inputs of others gathered again."""
    kept = columns and (recipe.gathers_columns or not sizes.gathered)
    beside = (2 * _ADDED + 2 * _NORM_BEHIND) * sizes.here + _GATED_BEHIND * sizes.wide
    copied = _COPIED * (2 * sizes.queries + sizes.keys) + _COPIED * (sizes.queries + 2 * sizes.keys)
    whole = recipe.cast(columns=columns) * (2 * sizes.wide + sizes.queries + 2 * sizes.keys)
    sent = 2 * recipe.cast(columns=kept) * sizes.here
    # Two inputs and two gradients of results are gathered.
    return beside + copied + whole + sent + 4 * recipe.turned * sizes.gathered * columns


def _narrow(shape: ModelShape, tp: int) -> float:
    """Return how many times as narrow as measured ones the products are, by their FLOPs; few are one product."""
    hidden, queries, wide = shape.hidden_size, shape.num_heads * shape.head_dim, shape.intermediate_size
    keys = 2 * shape.num_kv_heads * shape.head_dim
    products = [
        (hidden, (queries + keys) / tp),
        (queries / tp, hidden),
        (hidden, 2 * wide / tp),
        (wide / tp, hidden),
    ]
    flops = sum(one * other for one, other in products)
    return sum(one * other * _MEASURED_WIDE / min(one, other) for one, other in products) / flops
