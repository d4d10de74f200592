"""The FLOPs of a plan: those that its model asks for, and those that the devices compute for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmexp.inputs.shape import ModelShape
from llmexp.method import Techniques
from llmexp.record.flops import Computed, Flops
from llmexp.schema import AdapterConfig
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.seq_len_schedule import LengthSchedule
from llmexp.training.plan.share import shares_of
from llmexp.training.plan.trained import flops_per_token, lora_parameters

# Attention has 2 products forward, scores and weighted values, and 2 gradients of each backward. A kernel that keeps no
# scores computes them again in backward (FlashAttention, arXiv 2205.14135, algorithm 4).
FORWARD, BACKWARD, SCORES_AGAIN = 2, 4, 1
# The matrices of a layer in the order in which a token goes through them; those with the same input are side by side.
IN_TURN = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


def flops_of(shape: ModelShape, config: TrainingConfig, techniques: Techniques, computed: Computed | None) -> Flops:
    """Return the FLOPs that the model asks for, together with those that the devices compute."""
    per_position = flops_per_token(shape, 0, techniques, config.adapter)
    return Flops(
        per_position=per_position,
        fp8_per_position=_in_fp8(per_position, shape, config),
        attention_per_square=(FORWARD + BACKWARD) * shape.flops_per_product,
        seq_len=LengthSchedule.of(config).of_mean_token,
        computed=computed,
    )


def computed_flops(
    shape: ModelShape, config: TrainingConfig, techniques: Techniques, dims: ParallelDims, *, whole: bool
) -> Computed:
    """Return the FLOPs that the devices compute; with `whole`, recomputed layers run to their end."""
    missing = _missing(shape, techniques, config.adapter)
    matrices = flops_per_token(shape, 0, techniques, config.adapter) - missing.matrices
    longer = 1 + (
        config.adapter.virtual_tokens / LengthSchedule.of(config).of_mean_token if techniques.adapter == "prompt" else 0
    )
    recomputed = techniques.recomputation * config.memory.recomputed_share(shape.num_layers)
    again, ring = FORWARD * recomputed * (config.memory.keep is None), dims.cp > 1 and dims.cp_kind == "ring"
    # torch's checkpoint stops before the weighted values, which backward does not need; compiled code computes them for
    # what follows.
    again += techniques.attention_recomputation * (FORWARD if whole or techniques.compilation else 1)
    # On the ring, a rank computes both halves of the square for its own chunks only, and the scores again in backward.
    pairs, products = (1 + 1 / dims.cp, FORWARD + BACKWARD + SCORES_AGAIN) if ring else (2, FORWARD + BACKWARD)
    made = Computed(
        per_position=longer * (matrices + _matrices_again(shape, techniques, config, whole=whole)),
        fused_per_square=longer**2
        * (FORWARD + BACKWARD + SCORES_AGAIN + again - missing.fused)
        * shape.flops_per_product,
        unfused_per_square=longer**2 * pairs * (products + again - missing.unfused) * shape.flops_per_product,
        fused=techniques.flash_attention,
    )
    for share in shares_of(techniques):
        made = share.computed(made, shape)
    return made.model_copy(update={"fp8_per_position": _in_fp8(made.per_position, shape, config)})


def _in_fp8(per_position: float, shape: ModelShape, config: TrainingConfig) -> float:
    """Return the FLOPs per position of fp8 products: those of the layers' matrices, all of which train then."""
    if config.precision.linears is None:
        return 0.0
    in_parameters_dtype = 6 * shape.vocab_size * shape.hidden_size
    if config.precision.scaling == "rowwise_with_gw_hp":
        in_parameters_dtype += 2 * shape.active_linear_parameters
    return per_position - in_parameters_dtype


def recomputed_flops_per_token(
    shape: ModelShape, config: TrainingConfig, techniques: Techniques, dims: ParallelDims, *, whole: bool
) -> float:
    """Return the FLOPs that R or RS adds for each position of a sequence without padding."""
    once = replace(techniques, recomputation=False, attention_recomputation=False)
    seq_len = LengthSchedule.of(config).of_mean_token
    with_them, without = (computed_flops(shape, config, kinds, dims, whole=whole) for kinds in (techniques, once))
    return with_them.per_position - without.per_position + (with_them.per_square() - without.per_square()) * seq_len


def _matrices_again(shape: ModelShape, techniques: Techniques, config: TrainingConfig, *, whole: bool) -> float:
    """Return the FLOPs per position of matrices that R runs again, adapters included.

    Without `whole` a layer's last product is left out, because backward does not need its result.
    """
    if config.memory.keep == "products":
        return 0.0
    adapter = config.adapter
    lora = lora_parameters(shape, adapter) if techniques.adapter == "lora" else 0
    last = (
        adapter.rank * shape.hidden_size
        if lora and "down_proj" in adapter.targets
        else shape.hidden_size * shape.intermediate_size
    )
    # Experts' results are needed in backward, because they are weighted.
    left_out = 0 if whole or shape.num_experts else shape.num_layers * last
    recomputed = techniques.recomputation * config.memory.recomputed_share(shape.num_layers)
    return 2.0 * recomputed * (shape.active_linear_parameters + lora - left_out)


@dataclass(frozen=True)
class _Missing:
    """The work that backward leaves out: FLOPs per position, and products of attention as a mean over all layers."""

    matrices: float = 0.0
    fused: float = 0.0
    unfused: float = 0.0


def _missing(shape: ModelShape, techniques: Techniques, adapter: AdapterConfig) -> _Missing:
    """Return what LoRA's backward leaves out in the first layer: gradients of inputs that no trained parameter affects.

    With R nothing is left out, because checkpoints need inputs that have gradients.
    """
    if techniques.adapter != "lora" or techniques.recomputation:
        return _Missing()
    first = next(place for place, names in enumerate(IN_TURN) if set(names) & set(adapter.targets))
    without = [name for names in IN_TURN[: first + 1] for name in names]
    narrow = adapter.rank * sum(shape.matrices[name][0] for name in without if name in adapter.targets)
    query, key, value = (name in adapter.targets for name in IN_TURN[0])
    of_products = BACKWARD - (value + (query or key) + query + key)
    return _Missing(
        matrices=2.0
        * (sum(inputs * outputs for inputs, outputs in (shape.matrices[name] for name in without)) + narrow),
        fused=0 if first == 0 else (BACKWARD + SCORES_AGAIN) / shape.num_layers,
        unfused=of_products / shape.num_layers,
    )
