"""A decoder as runs of equal layers, with its parameters, FLOPs and cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from llmexp.inputs.architecture.mixers import Attention, LatentAttention
from llmexp.inputs.architecture.parts import Experts, Mixer, Mlp, Part
from llmexp.inputs.shape import RankPart


@dataclass(frozen=True)
class Layer:
    """A mixer, what follows it, and the gains of the norms around both."""

    mixer: Mixer
    feed_forward: Part | None
    norm_gains: int

    @property
    def parts(self) -> tuple[Part, ...]:
        """The mixer and what follows it."""
        return (self.mixer, self.feed_forward) if self.feed_forward else (self.mixer,)

    @property
    def words(self) -> str:
        """The kinds of its parts."""
        return ", ".join(part.words for part in self.parts)

    @property
    def parameters(self) -> int:
        """All parameters."""
        return sum(part.parameters for part in self.parts) + self.norm_gains

    def parameters_of_rank(self, part: RankPart) -> int:
        """Return the parameters of a rank that has its share of the experts and of cut matrices, and all else."""
        experts = self.feed_forward
        every = experts.count * experts.expert.parameters if isinstance(experts, Experts) else 0
        elsewhere = self._cut_parameters // part.tp * (part.tp - 1)
        return self.parameters - every - elsewhere + self.expert_parameters_of_rank(part)

    def expert_parameters_of_rank(self, part: RankPart) -> int:
        """Return the parameters of that rank's share of the experts that a router chooses from."""
        experts = self.feed_forward
        each = experts.expert.parameters // part.etp if isinstance(experts, Experts) else 0
        return experts.count // part.ep * each if isinstance(experts, Experts) else 0

    @property
    def cuts_evenly(self) -> bool:
        """Tell whether tensor parallelism cuts its matrices, routed experts aside, and leaves the rest whole."""
        mixer, rest = self.mixer, self.feed_forward
        attends = isinstance(mixer, Attention) and not mixer.gated and mixer.vectors == mixer.norm_gains
        routes = isinstance(rest, Experts) and not (rest.shared or rest.vectors)
        return attends and (routes or (isinstance(rest, Mlp) and not rest.vectors))

    @property
    def _cut_parameters(self) -> int:
        """The weights that tensor parallelism cuts where `cuts_evenly`."""
        parts = (part for part in self.parts if not isinstance(part, Experts))
        return sum(inputs * outputs for part in parts for inputs, outputs in part.matrices)

    @property
    def idle_parameters(self) -> int:
        """The parameters of experts that a token is not sent to."""
        return sum(part.idle_parameters for part in self.parts)


@dataclass(frozen=True)
class Architecture:
    """A decoder: an embedding, runs of equal layers, a norm, and an output projection."""

    family: str
    vocab_size: int
    hidden_size: int
    tie_embeddings: bool
    runs: tuple[tuple[int, Layer], ...]
    """How many equal layers follow each other."""
    besides: str = ""
    """What the model has that is not counted here, such as a vision tower."""

    @cached_property
    def kinds(self) -> dict[Layer, int]:
        """How many layers there are of each kind."""
        return {kind: sum(count for count, layer in self.runs if layer == kind) for _, kind in self.runs}

    @property
    def words(self) -> str:
        """The layers by kind."""
        return "; ".join(f"{count} x {layer.words}" for layer, count in self.kinds.items())

    @property
    def num_layers(self) -> int:
        """The number of all layers."""
        return sum(self.kinds.values())

    @property
    def embedding_parameters(self) -> int:
        """The parameters of the input embedding, which is looked up, not multiplied."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters_outside_layers(self) -> int:
        """The parameters of embedding, last norm and head."""
        return self.embedding_parameters * (1 if self.tie_embeddings else 2) + self.hidden_size

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        layers = sum(count * layer.parameters for layer, count in self.kinds.items())
        return layers + self.parameters_outside_layers

    @property
    def active_parameters(self) -> int:
        """The parameters that a token meets, the embedding's and the head's among them."""
        return self.parameters - sum(count * layer.idle_parameters for layer, count in self.kinds.items())

    @property
    def forward_flops_per_position(self) -> float:
        """The forward FLOPs of a token that do not depend on the sequence's length; the head's count."""
        layers = sum(
            count * sum(part.flops_per_position for part in layer.parts) for layer, count in self.kinds.items()
        )
        return layers + 2.0 * self.vocab_size * self.hidden_size

    def attention_flops(self, seq_len: float) -> float:
        """Return the forward FLOPs of a token's attention, as a mean over a sequence of that length."""
        return sum(count * layer.mixer.attention_flops(seq_len) for layer, count in self.kinds.items())

    @property
    def flops_per_key(self) -> float:
        """The forward FLOPs of a token's products with another one, in all layers as if none had a window."""
        return sum(count * layer.mixer.flops_per_key for layer, count in self.kinds.items())

    def forward_flops(self, seq_len: float) -> float:
        """Return the forward FLOPs of a token of a sequence of that length."""
        return self.forward_flops_per_position + self.attention_flops(seq_len)

    def flops_per_token(self, seq_len: float) -> float:
        """Return the FLOPs of forward and backward where all parameters train: backward is two forwards.

        This is the convention of `ModelShape.flops_per_token`.
        """
        return 3 * self.forward_flops(seq_len)

    def attends_all(self, seq_len: float) -> bool:
        """Tell whether no window ends within such a sequence, so that attention grows with its square."""
        reaches = (layer.mixer.reach for layer in self.kinds)
        return all(reach.is_full(seq_len) for reach in reaches if reach)

    def cache_elements(self, seq_len: int) -> int:
        """Return the numbers that decoding keeps for a sequence of that length: keys and values, and states."""
        return sum(count * layer.mixer.cache_elements(seq_len) for layer, count in self.kinds.items())

    @property
    def heads(self) -> set[tuple[int, int]]:
        """The heads of queries and those of keys and values, of each kind of attention."""
        mixers = [layer.mixer for layer in self.kinds if isinstance(layer.mixer, Attention | LatentAttention)]
        return {(each.heads, each.kv_heads if isinstance(each, Attention) else each.heads) for each in mixers}

    @property
    def cuts_evenly(self) -> bool:
        """Tell whether every layer does."""
        return all(layer.cuts_evenly for layer in self.kinds)

    @property
    def expert_counts(self) -> set[int]:
        """How many experts the layers that have some have."""
        return {experts.count for experts, _ in self._experts}

    def parameters_of_rank(self, part: RankPart) -> int:
        """Return the parameters of the rank that holds most, where stages have layers of one kind."""
        if part.pp == 1:
            layers = sum(count * layer.parameters_of_rank(part) for layer, count in self.kinds.items())
            return layers + self.ends_of_rank(part)
        (kind,) = self.kinds
        return self.num_layers // part.pp * kind.parameters_of_rank(part) + self.ends_of_rank(part)

    def ends_of_rank(self, part: RankPart) -> int:
        """Return the parameters of embedding, last norm and head of the rank that holds most of them."""
        if part.pp == 1:
            return self.hidden_size + (self.parameters_outside_layers - self.hidden_size) // part.tp
        return max(part.stage_ends(self.embedding_parameters // part.tp, self.hidden_size, tied=self.tie_embeddings))

    def expert_parameters_of_rank(self, part: RankPart) -> int:
        """Return the parameters of that rank's experts, shared ones aside, of which every rank has its own."""
        return self._all_experts // (part.ep * part.etp * part.pp)

    @property
    def _all_experts(self) -> int:
        return sum(layers * experts.count * experts.expert.parameters for experts, layers in self._experts)

    @property
    def _experts(self) -> list[tuple[Experts, int]]:
        """The experts of each kind of layer that has some, and how many such layers there are."""
        kinds = [(layer.feed_forward, layers) for layer, layers in self.kinds.items()]
        return [(part, layers) for part, layers in kinds if isinstance(part, Experts)]


def runs_of(layers: Iterable[Layer]) -> tuple[tuple[int, Layer], ...]:
    """Put equal layers that follow each other together."""
    return tuple((len(list(same)), layer) for layer, same in groupby(layers))
