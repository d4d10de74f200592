"""What one device of a server holds of a model, and what a token costs it: weights, cache and FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmexp.dtypes import HALF
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.parts import Experts, Mixer
from llmexp.inputs.architecture.reading import architecture_of, read_architecture
from llmexp.schema import MixtralModel, ModelConfig
from llmexp.schema.model import SizedModel

# Bytes of a weight of the layers' matrices by format; four bits have a scale and a zero for every 128 weights.
WEIGHT_BYTES: Mapping[str, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 4.25 / 8}


@dataclass(frozen=True)
class Formats:
    """The formats of numbers: of the layers' weights, of everything else, and of the cache."""

    weights: str = HALF
    rest_bytes: int = 2
    cache_bytes: int = 2

    @property
    def weight_bytes(self) -> float:
        """The bytes of a weight of a layer's matrices."""
        return WEIGHT_BYTES[self.weights]


@dataclass(frozen=True)
class CachedLayers:
    """Equal layers: their number, what mixes tokens in them, and a device's share of their cache."""

    count: int
    mixer: Mixer
    share: float


@dataclass(frozen=True)
class Held:
    """One device's part of a model that is cut over `cards` devices by tensor parallelism; counts are of numbers."""

    layers: int
    expert_layers: int
    hidden: int
    vocab: int
    dense: float
    """Of all layers but for experts: read in every iteration."""
    experts: float
    expert_count: int
    """Of a layer; 0 for a dense model."""
    experts_per_token: int
    active: float
    """Of all layers: those that a token is multiplied with."""
    head: float
    outside: float
    """Of embedding, last norm and head."""
    cached: tuple[CachedLayers, ...]
    flops_per_key: float
    cards: int
    formats: Formats

    def read_bytes(self, rows: float) -> float:
        """Return the bytes of weights that an iteration over so many tokens reads: few tokens miss many experts."""
        seen = 1.0
        if self.expert_count:
            seen -= (1.0 - self.experts_per_token / self.expert_count) ** rows
        return (self.dense + self.experts * seen) * self.formats.weight_bytes + self.head * self.formats.rest_bytes

    @property
    def weights_bytes(self) -> float:
        """The bytes of all weights."""
        return (self.dense + self.experts) * self.formats.weight_bytes + self.outside * self.formats.rest_bytes

    def cache_bytes(self, context: float) -> float:
        """Return the bytes that the cache of one sequence of that length takes, which decoding a token reads."""
        tokens = max(int(context), 1)
        elements = sum(one.count * one.share * one.mixer.cache_elements(tokens) for one in self.cached)
        return elements * self.formats.cache_bytes

    def prompt_flops(self, tokens: float) -> float:
        """Return the FLOPs of attention over a whole prompt of that length."""
        mean = sum(one.count * one.mixer.attention_flops(tokens) for one in self.cached)
        return tokens * mean / self.cards


def held(architecture: Architecture, cards: int = 1, formats: Formats | None = None) -> Held:
    """Return what one of `cards` devices holds of a model."""
    kinds = architecture.kinds
    found = {layer: layer.feed_forward for layer in kinds if isinstance(layer.feed_forward, Experts)}
    all_experts = sum(kinds[layer] * part.count * part.expert.parameters for layer, part in found.items())
    layers = sum(count * layer.parameters for layer, count in kinds.items())
    idle = sum(count * layer.idle_parameters for layer, count in kinds.items())
    first = next(iter(found.values()), None)
    return Held(
        layers=architecture.num_layers,
        expert_layers=sum(kinds[layer] for layer in found),
        hidden=architecture.hidden_size,
        vocab=architecture.vocab_size,
        dense=(layers - all_experts) / cards,
        experts=all_experts / cards,
        expert_count=first.count if first else 0,
        experts_per_token=first.top_k if first else 0,
        active=(layers - idle) / cards,
        head=architecture.embedding_parameters / cards,
        outside=architecture.parameters_outside_layers / cards,
        cached=tuple(
            CachedLayers(count, layer.mixer, layer.mixer.cache_share(cards)) for layer, count in kinds.items()
        ),
        flops_per_key=architecture.flops_per_key / cards,
        cards=cards,
        formats=formats or Formats(),
    )


def model_architecture(model: ModelConfig) -> Architecture:
    """Return the architecture of a model, by sizes or config.json; raises UncountedError where it is unknown."""
    return read_architecture(_config(model)) if isinstance(model, SizedModel) else architecture_of(model)


def kept_per_token(architecture: Architecture, positions: int, cards: int, number_bytes: int) -> int | None:
    """Return the bytes that the caches of all cards keep of a token; None where these depend on a request's length."""
    if 2 * architecture.cache_elements(positions) != architecture.cache_elements(2 * positions):
        return None
    of_card = held(architecture, cards, Formats(cache_bytes=number_bytes))
    return round(cards * of_card.cache_bytes(positions) / positions)


def _config(model: SizedModel) -> dict[str, Any]:
    """Return a model's sizes by the names of config.json."""
    sizes: dict[str, Any] = {
        "model_type": model.architecture,
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "tie_word_embeddings": model.tie_embeddings,
    }
    if isinstance(model, MixtralModel):
        sizes |= {"num_local_experts": model.num_experts, "num_experts_per_tok": model.experts_per_token}
    return sizes
