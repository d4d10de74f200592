"""What a model's layers cost a token, counted by kind of work: matrices, routed experts, attention, heads."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.errors import ConfigError
from llmexp.inputs.architecture import mixers, model
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.parts import Experts, Mixer
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.inputs.shape import ModelShape, shape_of
from llmexp.schema import ModelConfig
from llmexp.training.plan.dims import ParallelDims

# The kinds of layers whose rates are known.
_ATTENDS = (mixers.Attention, mixers.LatentAttention)


@dataclass(frozen=True)
class Layers:
    """The sums over all layers of a model, and the sizes that the work of a token depends on."""

    count: int
    hidden_size: int
    matrices: float
    """Weights that every token is multiplied with, routers and shared experts among them."""
    expert_matrices: float
    """Weights of the routed experts that a token is sent to."""
    routed: int
    """Layers with routed experts."""
    experts: int
    experts_per_token: int
    heads: float
    """Heads of attention, which have a matrix of scores each."""
    queries: float
    """Elements of a token's queries in all heads; its attended values are as many."""
    keys_and_values: float
    """As ranks that share sequences send them."""
    head: float
    """Weights of the output projection, which every token is multiplied with."""
    counted: ModelShape | Architecture

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        return self.counted.parameters

    def attention_flops(self, seq_len: float) -> float:
        """Return the forward FLOPs of a token's attention: the mean over a sequence, in all layers."""
        if isinstance(self.counted, Architecture):
            return self.counted.attention_flops(seq_len)
        return 2.0 * self.counted.flops_per_product * seq_len


@dataclass(frozen=True)
class SlowestStage:
    """The work of the pipeline's rank that computes most: a share of all layers, and the head or not."""

    share: float
    head: bool


def slowest_stage(layers: Layers, dims: ParallelDims) -> SlowestStage:
    """Return the rank that computes most: the last, unless the head counts as a layer there and is less than one."""
    if not dims.ends_as_layers:
        return SlowestStage(1 / dims.pp, head=True)
    first, between, last = dims.rank_part.stage_layers(layers.count)
    a_layer = (layers.matrices + layers.expert_matrices) / layers.count
    if last * a_layer + layers.head >= max(first, between) * a_layer:
        return SlowestStage(last / layers.count, head=True)
    return SlowestStage(max(first, between) / layers.count, head=False)


def layers_of(chosen: ModelConfig) -> Layers:
    """Return the layers of a model; raises ConfigError where they are not known, or a kind has no rate."""
    shape = shape_of(chosen)
    return _of_shape(shape) if shape else _of_architecture(architecture_of(chosen))


def uncounted(chosen: ModelConfig) -> str:
    """Say why `layers_of` does not know a model; empty where it does."""
    try:
        layers_of(chosen)
    except UncountedError as error:
        return f"model={chosen.name} is not counted: {error}"
    except ConfigError as error:
        return str(error)
    return ""


def _of_shape(shape: ModelShape) -> Layers:
    routed = shape.expert_parameters // (shape.num_experts or 1) * (shape.experts_per_token or 0)
    return Layers(
        count=shape.num_layers,
        hidden_size=shape.hidden_size,
        matrices=float(shape.active_linear_parameters - routed),
        expert_matrices=float(routed),
        routed=shape.num_layers if shape.num_experts else 0,
        experts=shape.num_experts or 0,
        experts_per_token=shape.experts_per_token or 0,
        heads=float(shape.num_layers * shape.num_heads),
        queries=float(shape.num_layers * shape.num_heads * shape.head_dim),
        keys_and_values=float(2 * shape.num_layers * shape.num_kv_heads * shape.head_dim),
        head=float(shape.vocab_size * shape.hidden_size),
        counted=shape,
    )


def _of_architecture(made: Architecture) -> Layers:
    unknown = next((mixer.words for mixer in _mixers(made) if not isinstance(mixer, _ATTENDS)), "")
    if unknown:
        raise ConfigError(f"no rate of layers of {unknown} is known")
    routers = {part for layer in made.kinds for part in layer.parts if isinstance(part, Experts)}
    attention = [(count, *_heads(layer.mixer)) for layer, count in made.kinds.items()]
    routed = sum(count * _routed(layer) for layer, count in made.kinds.items())
    layers = sum(count * _multiplied(layer) for layer, count in made.kinds.items())
    return Layers(
        count=made.num_layers,
        hidden_size=made.hidden_size,
        matrices=layers - routed,
        expert_matrices=routed,
        routed=sum(count for layer, count in made.kinds.items() if _routed(layer)),
        experts=max((part.count for part in routers), default=0),
        experts_per_token=max((part.top_k for part in routers), default=0),
        heads=float(sum(count * heads for count, heads, _, _ in attention)),
        queries=float(sum(count * queries for count, _, queries, _ in attention)),
        keys_and_values=float(sum(count * both for count, _, _, both in attention)),
        head=float(made.vocab_size * made.hidden_size),
        counted=made,
    )


def _mixers(made: Architecture) -> list[Mixer]:
    return [layer.mixer for layer in made.kinds]


def _multiplied(layer: model.Layer) -> float:
    return float(sum(inputs * outputs for part in layer.parts for inputs, outputs in part.matrices))


def _routed(layer: model.Layer) -> float:
    """Return the weights of the routed experts that a token of a layer is sent to."""
    part = layer.feed_forward
    if not isinstance(part, Experts):
        return 0.0
    return float(part.top_k * sum(inputs * outputs for inputs, outputs in part.expert.matrices))


def _heads(mixer: Mixer) -> tuple[int, int, int]:
    """Return the heads of a layer of attention, and the elements of a token's queries, and of its keys and values."""
    if isinstance(mixer, mixers.LatentAttention):
        wide = mixer.plain_dim + mixer.rotary_dim
        # Values are widened to their keys' width where ranks share sequences.
        return mixer.heads, mixer.heads * wide, 2 * mixer.heads * wide
    assert isinstance(mixer, mixers.Attention)
    return mixer.heads, mixer.heads * mixer.head_dim, 2 * mixer.kv_heads * mixer.head_dim
