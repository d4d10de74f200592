"""The bytes that a forward pass leaves for backward in models of transformers that are not like Llama.

The terms are those of `activations`, by the parts of each layer. What the modules of a family keep besides stands in
`FAMILIES`; a family that is not there is not known. The choice between groups of experts is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.dtypes import bytes_of
from llmexp.inputs.architecture import mixers, model, parts
from llmexp.inputs.architecture.fields import UncountedError
from llmexp.inputs.architecture.model import Architecture
from llmexp.inputs.architecture.reading import architecture_of
from llmexp.method import Techniques
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.activations import FP32, KEPT_LOSS_COPIES, LOSS_COPIES, LOSS_ROWS, Activations
from llmexp.training.plan.atom_shares import RECOMPUTATION
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import TORCH
from llmexp.training.plan.kept_by_family import FAMILIES, KeptByFamily
from llmexp.training.plan.share import Share, shares_of
from llmexp.training.plan.state_activations import MixerBytes, PassSizes, delta_net, mamba2

INDEX = 8
# Of the experts that a token is sent to: the choice, its order, the tokens' places and the experts in that order.
INDICES = 4


def unknown_activations(
    made: Architecture, config: TrainingConfig, techniques: Techniques, dims: ParallelDims
) -> str | None:
    """Say what makes a run's activations unknown; None where `family_activations` counts them."""
    other = any(_sinks(layer.mixer) for layer in made.kinds)
    # What other engines keep of a cut sequence has not been held against real tensors.
    shares_sequences = config.engine.name == TORCH
    reasons = {
        "these layers (--trace-memory counts them)": made.family not in FAMILIES,
        "these layers with F": other and techniques.flash_attention,
        "these layers with this method": any(map(_changes, shares_of(techniques)))
        or techniques.attention_recomputation
        or techniques.compilation,
        "these layers with kernels.liger": config.kernels.liger,
        "these layers with memory.activation_offload": config.memory.activation_offload,
        "these layers with these degrees": dims.world_size > dims.dp * (dims.cp if shares_sequences else 1),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def activations_of_folder(
    config: TrainingConfig, techniques: Techniques, dims: ParallelDims, micro: int
) -> Activations | None:
    """Return the bytes of a configured model's activations; None where its layers, or what they keep, are not known."""
    try:
        made = architecture_of(config.model)
    except UncountedError:
        return None
    if unknown_activations(made, config, techniques, dims):
        return None
    return family_activations(made, config, techniques, dims, micro)


def family_activations(
    made: Architecture, config: TrainingConfig, techniques: Techniques, dims: ParallelDims, micro: int
) -> Activations:
    """Return the bytes of a rank's activations with `micro` sequences a pass, where they are known."""
    formula = FamilyFormula(made, config, techniques, dims, micro)
    layers = {layer: formula.kept(layer) for layer in made.kinds}
    head, of_loss = formula.head()
    outside = head + formula.shared()
    if techniques.recomputation:
        kept = formula.entries() + formula.masks()
        backward = max(again + formula.passing(layer) for layer, again in layers.items())
        last = formula.residual + backward
    else:
        kept = sum(count * layers[layer] for layer, count in made.kinds.items())
        backward = max(map(formula.passing, made.kinds))
        last = max(again + formula.passing(layer) for layer, again in layers.items())
    return Activations(
        round(kept + outside),
        round(max(of_loss, backward - head, 0.0)),
        first=round(kept + formula.shared() + backward),
        last=round(last),
    )


@dataclass(frozen=True)
class FamilyFormula:
    """The sizes that the terms are made of: of the model, the method, and a micro batch."""

    made: Architecture
    config: TrainingConfig
    techniques: Techniques
    dims: ParallelDims
    micro: int

    @property
    def family(self) -> KeptByFamily:
        """Return what the family's modules keep besides."""
        return FAMILIES[self.made.family]

    @property
    def element(self) -> int:
        """Bytes of an element in the parameters' dtype."""
        return bytes_of(self.config.precision.parameters)

    @property
    def tokens(self) -> int:
        """Tokens of a micro batch on one rank: context parallelism cuts every sequence."""
        return self.micro * self.config.data.seq_len // self.dims.cp

    @property
    def fused(self) -> bool:
        """Tell whether attention keeps no scores: neither F's kernels do nor a ring, which has a block at a time."""
        return self.techniques.flash_attention or self.dims.cp_kind == "ring"

    @property
    def residual(self) -> int:
        """Bytes of the hidden states between two layers."""
        in_fp32 = any(_keeps_fp32(layer.mixer) for layer in self.made.kinds)
        return self.tokens * self.made.hidden_size * (FP32 if in_fp32 else self.element)

    def entries(self) -> int:
        """Return the bytes of what enters all layers: the first takes embeddings, in the parameters' dtype."""
        embedded = self.tokens * self.made.hidden_size * self.element
        return embedded + (self.made.num_layers - 1) * self.residual

    def kept(self, layer: model.Layer) -> float:
        """Return the bytes that a layer keeps."""
        norms = layer.norm_gains // self.made.hidden_size * self._norm(self.made.hidden_size)
        state, fixed = self._state(layer.mixer), self._fixed(layer.feed_forward)
        mixed = 0.0 if state else self._mixer(layer.mixer)
        of_state = state.for_backward if state else 0.0
        return self.tokens * (norms + mixed + self._feed_forward(layer.feed_forward)) + of_state + fixed

    def passing(self, layer: model.Layer) -> float:
        """Return the most bytes that exist in a layer's backward besides what it keeps."""
        before = self.tokens * (self._norm(self.made.hidden_size) + self._feed_forward(layer.feed_forward))
        state = self._state(layer.mixer)
        of_scores = (state.passing if state else self._of_scores(layer.mixer)) - before
        return max(of_scores, self._of_products(layer.feed_forward), self._of_norm())

    def _of_norm(self) -> float:
        """Return the gradients of a norm's steps in fp32, and the one that it gets."""
        steps = 3 * FP32 if self.family.gains_in_fp32 else 0
        return self.tokens * self.made.hidden_size * (steps + self.element)

    def _of_scores(self, mixer: parts.Mixer) -> float:
        """Return softmax's two gradients where they exist; the copy of its result is gone by then."""
        if self.techniques.flash_attention:
            return 0.0
        # A ring computes a block again for each rank.
        blocks = self.dims.cp if self.fused else 1
        sizes = 2 * self.element if _sinks(mixer) else 2 * FP32 - (0 if self.element == FP32 else self.element)
        return self.tokens * self._scores(mixer) * sizes / blocks

    def _of_products(self, part: parts.Part | None) -> float:
        """Return the gradients of an MLP's products, or of the weighted results of experts."""
        if isinstance(part, parts.Experts):
            weighted = part.hidden * (FP32 if self.family.weights_in_fp32 else self.element)
            return self.tokens * 3.0 * part.top_k * max(weighted, part.expert.width * self.element)
        return self.tokens * 3.0 * (part.width if isinstance(part, parts.Mlp) else 0) * self.element

    def head(self) -> tuple[float, float]:
        """Return the bytes that last norm, head and loss keep, and those that the loss holds besides."""
        logits = self.tokens * self.made.vocab_size * FP32
        kept = self.tokens * self._norm(self.made.hidden_size) + self.residual
        if self.config.kernels.chunked_loss:
            return self._chunked_head(kept)
        return kept + KEPT_LOSS_COPIES * logits, (LOSS_COPIES - KEPT_LOSS_COPIES) * logits

    def _chunked_head(self, kept: float) -> tuple[float, float]:
        """Return the head's bytes where forward makes the gradients: they are kept, and few logits exist at a time."""
        hidden, vocabulary = self.made.hidden_size * self.element, self.made.vocab_size
        copies = FP32 * (1 + (self.element != FP32)) + self.element
        chunk = min(LOSS_ROWS, self.tokens) * vocabulary * copies
        of_weight = vocabulary * hidden * (self.techniques.adapter is None)
        return kept + of_weight, chunk + self.tokens * hidden

    def shared(self) -> float:
        """Return the bytes of what layers share: rotary tables, positions, and the labels of the loss."""
        width = max(_rotated(layer.mixer) for layer in self.made.kinds)
        size = FP32 if self.family.rotary_in_fp32 else self.element
        tables = 2 * width * size * self.family.rotary_tables
        # A rank tells the positions of its part of each sequence, else they are the same for all.
        positions = self.tokens if self.dims.cp > 1 else self.config.data.seq_len
        return positions * (tables + INDEX) + self.tokens * INDEX

    def masks(self) -> float:
        """Return the bytes of the masks, one for each reach, which layers that attend again share."""
        reaches = {layer.mixer.reach for layer in self.made.kinds if layer.mixer.reach}
        unfused = not self.techniques.flash_attention and self.dims.cp == 1
        return len(reaches) * self.tokens * self.config.data.seq_len * self.element * unfused

    def _norm(self, width: int, rows: int = 1) -> float:
        """Return RMSNorm's bytes a token: its input in fp32, the root of each row, and the result before the gain."""
        return width * (FP32 + (FP32 if self.family.gains_in_fp32 else self.element)) + rows * FP32

    def _state(self, mixer: parts.Mixer) -> MixerBytes | None:
        """Return the bytes of a mixer that has a state instead of attention."""
        batch = PassSizes(self.micro, self.config.data.seq_len, self.element)
        if isinstance(mixer, mixers.GatedDeltaNet):
            return delta_net(mixer, batch)
        return mamba2(mixer, batch) if isinstance(mixer, mixers.Mamba2) else None

    def _mixer(self, mixer: parts.Mixer) -> float:
        if isinstance(mixer, mixers.LatentAttention):
            return self._latent(mixer)
        assert isinstance(mixer, mixers.Attention)
        queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        rows = mixer.heads + mixer.kv_heads if mixer.norm_gains == 2 * mixer.head_dim else 2
        normed = self._norm(queries + keys, rows) if mixer.norm_gains else 0.0
        # The gate, and what it multiplies.
        normed += 2 * queries * self.element if mixer.gated else 0
        # The result of ranks that share sequences is copied, into the layout of the next product.
        normed += queries * self.element * (self.dims.cp > 1)
        if not self.fused:
            # Keys and values are repeated for every query head of their group.
            view = queries + keys if self.family.values_in_fused and mixer.heads == mixer.kv_heads else 0
            operands = mixer.hidden + 4 * queries + self._of_view(view)
            return normed + operands * self.element + self._attended(mixer)
        values = queries + 2 * keys if self.family.values_in_fused else keys
        results = queries * (2 if self.family.joins_rotated else 1)
        return normed + (mixer.hidden + queries + keys + values + results) * self.element + mixer.heads * FP32

    def _latent(self, mixer: mixers.LatentAttention) -> float:
        """Return the bytes a token of latents, and of queries, keys and values in whole heads."""
        ranks = [rank for rank in (mixer.query_rank, mixer.kv_rank) if rank]
        norms = sum(self._norm(rank) for rank in ranks)
        operands = 2 * mixer.heads * (mixer.plain_dim + mixer.rotary_dim + mixer.value_dim)
        operands += mixer.hidden + sum(ranks)
        if not self.fused:
            operands += self._of_view(mixer.heads * mixer.plain_dim)
            return norms + operands * self.element + self._attended(mixer)
        # Values stay a view of one product with a part of the keys, and the result's layout is copied.
        operands += mixer.heads * (mixer.plain_dim + mixer.value_dim)
        return norms + operands * self.element + mixer.heads * FP32

    def _of_view(self, besides: int) -> int:
        """Return what stays besides values that are a view of one product: those of several sequences are copied."""
        return besides if self.micro == 1 else 0

    def _scores(self, mixer: parts.Mixer) -> float:
        """Return the elements of attention's matrices for a query."""
        assert isinstance(mixer, mixers.Attention | mixers.LatentAttention)
        return mixer.heads * self.config.data.seq_len

    def _attended(self, mixer: parts.Mixer) -> float:
        """Return the bytes a token of the matrices: softmax in fp32 and a copy, or as it is where there are sinks."""
        scores, copy = self._scores(mixer), 0 if self.element == FP32 else self.element
        if _sinks(mixer):
            heads = scores / self.config.data.seq_len
            return (scores + heads) * self.element + heads * INDEX
        return scores * (FP32 + copy)

    def _feed_forward(self, part: parts.Part | None) -> float:
        if part is None:
            return 0.0
        if isinstance(part, parts.Mlp):
            return (part.hidden + 4 * part.width) * self.element
        assert isinstance(part, parts.Experts)
        # Each expert gets a copy of its tokens, and its weighted result is kept.
        sent = part.top_k * (2 * part.hidden + self.family.expert_products * part.expert.width)
        shared = 4 * part.shared.width + part.hidden * part.shared_gate if part.shared else 0
        return (part.hidden + sent + shared) * self.element + self._router(part)

    def _router(self, part: parts.Experts) -> float:
        """Return the bytes a token of all experts' probabilities in fp32, and of the indices and weights of those."""
        chosen = part.top_k * (INDICES * INDEX + 2 * FP32)
        copy = part.hidden * FP32 if self.family.router_in_fp32 and self.element != FP32 else 0
        return chosen + copy + (0 if part.router_bias else part.count * FP32)

    def _fixed(self, part: parts.Part | None) -> float:
        """Return the bytes of a router's weights in fp32, whatever the number of tokens."""
        copies = isinstance(part, parts.Experts) and self.family.router_in_fp32 and self.element != FP32
        return part.hidden * part.count * FP32 if isinstance(part, parts.Experts) and copies else 0.0


def _rotated(mixer: parts.Mixer) -> int:
    """Return the elements of a head that turn with its position; where only a part of them does, all are counted."""
    if isinstance(mixer, mixers.LatentAttention):
        return mixer.rotary_dim
    return mixer.head_dim if isinstance(mixer, mixers.Attention) else 0


def _keeps_fp32(mixer: parts.Mixer) -> bool:
    return isinstance(mixer, mixers.Mamba2) and mixer.residual_in_fp32


def _sinks(mixer: parts.Mixer) -> bool:
    return isinstance(mixer, mixers.Attention) and mixer.sinks


def _changes(share: Share) -> bool:
    """Tell whether an atom changes activations in a way that is not this formula's."""
    kind = type(share)
    changed = kind.layer is not Share.layer or kind.activations is not Share.activations
    return changed and share is not RECOMPUTATION
