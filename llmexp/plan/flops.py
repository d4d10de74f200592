"""FLOPs of a plan: what its model asks for, and what the devices compute to do it."""

from __future__ import annotations

from dataclasses import replace

from llmexp.method import Techniques
from llmexp.plan.dims import ParallelDims
from llmexp.plan.growth import LengthSchedule
from llmexp.plan.shape import ModelShape
from llmexp.plan.trained import flops_per_token, lora_parameters
from llmexp.record.flops import Computed, Flops
from llmexp.schema import AdapterConfig, RunConfig

# Products of attention: scores and weighted values forward, two gradients of each backward. A kernel that keeps no scores makes them again in
# backward (FlashAttention, arXiv 2205.14135, algorithm 4).
FORWARD, BACKWARD, SCORES_AGAIN = 2, 4, 1


def flops_of(shape: ModelShape, config: RunConfig, techniques: Techniques, computed: Computed | None) -> Flops:
    """The model's, with what the devices compute beside them."""
    return Flops(
        per_position=flops_per_token(shape, 0, techniques, config.adapter),
        attention_per_square=(FORWARD + BACKWARD) * shape.flops_per_product,
        seq_len=LengthSchedule.of(config).of_mean_token,
        computed=computed,
    )


def computed_flops(shape: ModelShape, config: RunConfig, techniques: Techniques, dims: ParallelDims, *, whole: bool) -> Computed:
    """What the devices compute; `whole`: layers that run again do so to their end."""
    longer = 1 + (config.adapter.virtual_tokens / LengthSchedule.of(config).of_mean_token if techniques.adapter == "prompt" else 0)
    matrices = flops_per_token(shape, 0, techniques, config.adapter) - _without_input_gradient(shape, techniques, config.adapter)
    per_product, again = longer**2 * shape.flops_per_product, FORWARD * techniques.recomputation
    ring = dims.cp > 1 and dims.cp_kind == "ring"
    # On the ring a rank computes both halves of its own chunks alone, and makes the scores again in backward.
    pairs, unfused_backward = (1 + 1 / dims.cp, BACKWARD + SCORES_AGAIN) if ring else (2, BACKWARD)
    # torch's checkpoint stops before the weighted values, which backward does not need; compiled code computes them for what follows.
    selective = (FORWARD if whole or techniques.compilation else 1) * techniques.attention_recomputation
    return Computed(
        per_position=longer * (matrices + _matrices_again(shape, techniques, config.adapter, whole=whole)),
        fused_per_square=(FORWARD + BACKWARD + SCORES_AGAIN + again) * per_product,
        unfused_per_square=pairs * (FORWARD + unfused_backward + again + selective) * per_product,
        fused=techniques.flash_attention,
    )


def recomputed_flops_per_token(shape: ModelShape, config: RunConfig, techniques: Techniques, dims: ParallelDims, *, whole: bool) -> float:
    """What R or RS adds to a position of a sequence without padding."""
    once = replace(techniques, recomputation=False, attention_recomputation=False)
    seq_len = LengthSchedule.of(config).of_mean_token
    with_them, without = (computed_flops(shape, config, kinds, dims, whole=whole) for kinds in (techniques, once))
    return with_them.per_position - without.per_position + (with_them.per_square() - without.per_square()) * seq_len


def _matrices_again(shape: ModelShape, techniques: Techniques, adapter: AdapterConfig, *, whole: bool) -> float:
    """Forward products of R: adapters' too, and without `whole` not a layer's last, whose result backward does not need."""
    lora = lora_parameters(shape, adapter) if techniques.adapter == "lora" else 0
    last = adapter.rank * shape.hidden_size if lora and "down_proj" in adapter.targets else shape.hidden_size * shape.intermediate_size
    # What experts gave is weighted, for which it is needed.
    left_out = 0 if whole or shape.num_experts else shape.num_layers * last
    return 2.0 * techniques.recomputation * (shape.active_linear_parameters + lora - left_out)


def _without_input_gradient(shape: ModelShape, techniques: Techniques, adapter: AdapterConfig) -> float:
    """Of LoRA, gradients of the first layer's inputs, below which nothing trains; with R they are computed all the same, for its checkpoints."""
    if techniques.adapter != "lora" or techniques.recomputation:
        return 0.0
    first = {name: sides for name, sides in shape.matrices.items() if name in ("q_proj", "k_proj", "v_proj")}
    narrow = adapter.rank * shape.hidden_size * len(first.keys() & set(adapter.targets))
    return 2.0 * (sum(inputs * outputs for inputs, outputs in first.values()) + narrow)
