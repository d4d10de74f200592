"""The work of one training step on one rank, by what limits it: products, memory, launches, links and the host.

Every field is a number, so that the schedule computes with one step or with arrays of many.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.training.plan.trained import Trained
from llmexp.training.plan.training_plan import TrainingPlan

BF16 = 2
# What AdamW reads and writes for each parameter of two bytes with moments of two: weight, gradient and both moments
# in, weight and moments out.
_WEIGHT_AND_GRADIENT = 6.0
FUSED, UNFUSED = 0.0, 1.0


@dataclass(frozen=True)
class Work:
    """One rank's work in one step; flags are 0 or 1.

    A pass is one forward and backward of a micro batch. Sizes of links are what one rank sends.
    """

    passes: float
    tokens: float
    """Positions of a pass: the rows of every product."""
    products_flops: float
    """FLOPs of all products of matrices in one forward pass, attention aside."""
    frozen: float
    """The matrices do not train, so that backward computes one product for each of forward, not two."""
    score_elements: float
    """Elements of all layers' attention matrices, where they are written to memory."""
    attention_flops: float
    """FLOPs of fused attention in one forward pass: the causal half of two products."""
    seq_len: float
    hidden_elements: float
    """Tokens x hidden size x layers: what norms, rotary embeddings, residuals and gates read and write many times."""
    fused: float
    """F is on."""
    compiled: float
    """C is on: elementwise operations are fused."""
    recomputed: float
    """R is on: backward begins with another forward pass."""
    dequantized_parameters: float
    layers: float
    adapter: float
    update_bytes: float
    """What the optimizer reads and writes at least, on the device."""
    unfused_update: float
    zero2: float
    """Gradients are reduced to their shares, and parameters gathered after the update (Z1 and Z2)."""
    zero3: float
    replicated: float
    """Gradients are reduced to all ranks."""
    reduced_bytes: float
    """A rank's gradients x (n - 1) / n."""
    gathered_bytes: float
    """All parameters, frozen ones too, x (n - 1) / n: what Z3 gathers for one forward pass."""
    host_parameters: float
    """Parameters that the processors of the host update, on all ranks together."""
    fetched_parameters: float
    """Parameters that lie in host memory."""


def work_of(plan: TrainingPlan) -> Work:
    """Return the work of a plan that `unpredicted` has nothing to say of."""
    shape, techniques, config = shape_of(plan.config.model), plan.techniques, plan.config
    assert shape is not None
    trained = Trained.of(shape, techniques, config.adapter)
    tokens, seq_len = float(plan.batch.micro * config.data.seq_len), float(config.data.seq_len)
    frozen = float(not trained.matrices_train)
    heads = shape.num_layers * shape.num_heads
    scores = plan.batch.micro * heads * seq_len**2
    flash, stage = techniques.flash_attention, techniques.zero_stage
    ranks = plan.dims.dp
    sent = (ranks - 1) / ranks
    offloaded = techniques.offload_optimizer
    held = trained.trainable / (ranks if stage else 1)
    return Work(
        passes=float(plan.batch.accumulation),
        tokens=tokens,
        products_flops=2.0 * tokens * _multiplied(shape),
        frozen=frozen,
        score_elements=0.0 if flash else scores,
        attention_flops=2.0 * scores * shape.head_dim if flash else 0.0,
        seq_len=seq_len,
        hidden_elements=tokens * shape.hidden_size * shape.num_layers,
        fused=float(flash),
        compiled=float(techniques.compilation),
        recomputed=float(techniques.recomputation),
        dequantized_parameters=float(trained.four_bit),
        layers=float(shape.num_layers),
        adapter=float(techniques.adapter == "lora"),
        update_bytes=0.0 if offloaded else held * (_WEIGHT_AND_GRADIENT + 2 * _moment_bytes(plan)),
        unfused_update=FUSED if config.optimizer.implementation == "torch" else UNFUSED,
        zero2=float(stage in (1, 2)),
        zero3=float(stage == 3),
        replicated=float(stage == 0 and ranks > 1),
        reduced_bytes=BF16 * trained.trainable * sent,
        gathered_bytes=BF16 * (shape.parameters if stage == 3 else trained.trainable) * sent,
        host_parameters=float(trained.trainable) if offloaded else 0.0,
        fetched_parameters=float(shape.parameters) if techniques.offload_parameters else 0.0,
    )


def _multiplied(shape: ModelShape) -> float:
    """Return the parameters that a token is multiplied with; LoRA's narrow matrices are left to the launches."""
    return shape.active_linear_parameters + shape.vocab_size * shape.hidden_size


def _moment_bytes(plan: TrainingPlan) -> float:
    """Return the bytes of moments of a parameter, and of the copy that the optimizer updates."""
    precision = plan.config.precision
    copy = 4.0 if precision.master != precision.parameters else 0.0
    return (plan.optimizer_state_bytes_per_parameter or 0.0) + copy
