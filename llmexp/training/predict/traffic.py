"""What a rank sends in a step besides gradients and parameters, by the kind of parallelism that needs it."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.dtypes import bytes_of
from llmexp.training.plan.float8 import by_transformer_engine
from llmexp.training.plan.training_plan import TrainingPlan
from llmexp.training.predict.layers import Layers

# A layer of tensor parallelism gathers and scatters its tokens twice in each direction: for attention and for its MLP.
_PAIRS_OF_LAYER = 2


@dataclass(frozen=True)
class Traffic:
    """Bytes that a rank sends in the forward of one pass, and the collectives that it takes part in."""

    tensor_bytes: float
    tensor_calls: float
    sequence: float
    """What sequence parallelism gathers once more in backward, as a share of half of what it sends in forward.

    It is the inputs of matrices (arXiv 2205.05198, section 4.2.2).
    """
    ring_bytes: float
    """Keys and values of ring attention, which travel while others are attended to."""
    ulysses_bytes: float
    context_calls: float
    expert_bytes: float
    expert_calls: float
    stage_bytes: float
    """What a stage hands on, over all of a rank's stages."""
    stage_calls: float


def traffic_of(plan: TrainingPlan, layers: Layers, tokens: float, share: float) -> Traffic:
    """Return what a rank sends for `tokens` positions of its own in its `share` of all layers."""
    dims, element = plan.dims, bytes_of(plan.config.precision.parameters)
    count, routed = layers.count * share, layers.routed * share
    state = tokens * layers.hidden_size * element
    sequence = dims.tp if dims.sequence else 1
    ring = dims.cp > 1 and dims.cp_kind == "ring"
    keys = tokens * layers.keys_and_values * share / dims.tp * element
    heads = tokens * (2 * layers.queries + layers.keys_and_values) * share / dims.tp * element
    sent = tokens / sequence * layers.hidden_size * element * layers.experts_per_token
    # TransformerEngine gathers in fp8, of a byte, and scatters in 16 bits (module/layernorm_linear.py, base.py).
    gathers = state / element if by_transformer_engine(plan.config) and dims.sequence else state
    gathered = layers.experts_per_token * (dims.expert_tensor - 1) / dims.tp
    crossed = dims.virtual_stages if dims.pp > 1 else 0
    return Traffic(
        # Gathering and scattering move what an all-reduce does. Experts that are cut gather every token for each of its
        # experts.
        tensor_bytes=(gathers + state) * ((_PAIRS_OF_LAYER * count - routed) * _others(dims.tp) + routed * gathered),
        tensor_calls=2.0 * ((_PAIRS_OF_LAYER * count - routed) * (dims.tp > 1) + routed * (dims.expert_tensor > 1)),
        sequence=dims.sequence * 2 * gathers / (gathers + state),
        ring_bytes=ring * (dims.cp - 1) * keys,
        ulysses_bytes=(dims.cp > 1 and not ring) * heads * _others(dims.cp),
        context_calls=count * (dims.cp - 1 if ring else 4 * (dims.cp > 1)),
        expert_bytes=2 * routed * sent * _others(dims.ep),
        expert_calls=2 * routed * (dims.ep > 1),
        stage_bytes=crossed * state / sequence,
        stage_calls=float(crossed),
    )


def _others(ranks: int) -> float:
    """Return the share of a collective's data that a rank sends."""
    return (ranks - 1) / ranks
