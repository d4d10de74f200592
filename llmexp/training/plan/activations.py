"""The bytes that a forward pass leaves for backward, by a closed formula; they grow with the micro batch.

The terms follow Korthikanti et al. (arXiv 2205.05198, section 4) for what grows with the sequence and its square, and
count what transformers' Llama (5.x) really keeps: RMSNorm's copy in fp32 and its result before the gain, the scores of
attention in fp32 and once more in the parameters' dtype, gate, activation and product of the gated MLP, and the
logits' log-softmax in fp32. `tests/launchers/models/test_kept_activations.py` holds the count against real tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmexp.dtypes import bytes_of
from llmexp.inputs.shape import ModelShape
from llmexp.method import Techniques
from llmexp.training.config import TrainingConfig
from llmexp.training.plan.dims import ParallelDims
from llmexp.training.plan.float8 import MEGATRON, by_transformer_engine, kept_bytes
from llmexp.training.plan.schedules import SCHEDULES
from llmexp.training.plan.share import shares_of

FP32 = 4
# What the loss holds at its peak for each logit, in fp32: the log-softmax, its gradient, and the gradient from which
# that is made. Of these backward needs the first from forward on.
LOSS_COPIES, KEPT_LOSS_COPIES = 3, 1
# The tokens whose logits exist together with kernels.chunked_loss.
LOSS_ROWS = 1024
_FORWARD_FIRST = ("gpipe", "looped_bfs")


@dataclass(frozen=True)
class Activations:
    """The bytes of one rank's activations, all for one micro batch."""

    kept: int
    """What all its layers and the head hold for backward when forward ends, over all passes in flight."""
    passing: int
    """The most that exists besides at the start of backward: the loss's gradients, or a layer's."""
    on_host: int = 0
    """What waits in host memory where activations are offloaded."""
    first: int = 0
    """What exists in the backward of the last layer, the first to run: the head's share of `kept` is gone."""
    last: int = 0
    """What exists in the backward of the first layer, the last to run, when the others' gradients all exist."""

    @property
    def peak(self) -> int:
        """The most on the device at a time."""
        return self.kept + self.passing


@dataclass(frozen=True)
class Layer:
    """A decoder layer's bytes for one micro batch on one rank: its input, all that it keeps, and its gradients."""

    entry: float
    kept: float
    passing: float
    again: float = 0.0
    """What one layer at a time computes again in backward."""
    whole: float = 0.0
    """What a layer keeps that R leaves alone."""


@dataclass(frozen=True)
class Formula:
    """The sizes that the terms are made of: of the model, the method, and a rank's part of a micro batch."""

    shape: ModelShape
    config: TrainingConfig
    techniques: Techniques
    dims: ParallelDims
    micro: int

    @property
    def element(self) -> int:
        """Bytes of an element in the parameters' dtype."""
        return bytes_of(self.config.precision.parameters)

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence, prompt tuning's own among them."""
        virtual = self.config.adapter.virtual_tokens if self.techniques.adapter == "prompt" else 0
        return self.config.data.seq_len + virtual

    @property
    def matrix_parts(self) -> int:
        """Parts into which matrices, and with them heads and the vocabulary, are cut."""
        return self.dims.parts("matrices")

    @property
    def sequence_parts(self) -> int:
        """Parts into which every sequence is cut."""
        return self.dims.parts("sequence")

    @property
    def tokens(self) -> float:
        """Tokens of a micro batch on one rank: context parallelism cuts every sequence."""
        return self.micro * self.seq_len / self.sequence_parts

    @property
    def residual(self) -> float:
        """Elements of a token's hidden state on one rank: sequence parallelism cuts it over tp."""
        return self.shape.hidden_size / (self.dims.tp if self.dims.sequence else 1)

    @property
    def kept_of_inputs(self) -> float:
        """Bytes of an element of a matrix's input, of which TransformerEngine keeps fp8 besides what others keep."""
        in_fp8 = by_transformer_engine(self.config) and self.techniques.adapter is None
        return kept_bytes(self.config) if in_fp8 else self.element

    @property
    def squares(self) -> float:
        """Elements of attention's scores on one rank: context parallelism cuts them by rows or by heads."""
        return self.micro * self.shape.num_heads / self.matrix_parts * self.seq_len**2 / self.sequence_parts

    def feeds_trained(self, *matrices: str) -> bool:
        """Tell whether backward needs the input of these matrices: they train, or one of LoRA's does beside them."""
        if self.techniques.adapter == "lora":
            return bool(set(matrices) & set(self.config.adapter.targets))
        return self.techniques.adapter is None and self.techniques.quantization is None

    def layer(self) -> Layer:
        """Return the bytes of one layer."""
        attended, passing_of_scores = self.scores()
        a_token = 2 * self._norm() + self._attention() + self._mlp() + self._adapter()
        wide = self.shape.intermediate_size / self.matrix_parts * self._experts_of_token()
        passing = max(passing_of_scores, 3 * wide * self.element * self.tokens) + self._dequantized()
        scales, rounded, steps = self._rounded()
        entry = self.residual * self.element * self.tokens + scales
        return Layer(entry, a_token * self.tokens + attended + scales + rounded, passing + steps)

    def kept_results(self) -> tuple[float, float]:
        """Return the bytes of what one layer keeps with memory.keep, and those of it that backward needs itself.

        Other results are kept because they are products: backward needs what follows from them.
        """
        keep, shape = self.config.memory.keep, self.shape
        if keep is None:
            return 0.0, 0.0
        # Backward needs the logarithm of each sum of weights, in fp32.
        attended = (shape.num_heads * shape.head_dim * self.element + shape.num_heads * FP32) * self.tokens
        if keep == "attention":
            return attended, attended
        lora = self.config.adapter.targets if self.techniques.adapter == "lora" else ()
        narrow = sum(self.config.adapter.rank + shape.matrices[name][1] for name in lora)
        wide = sum(outputs for _, outputs in shape.matrices.values())
        needed = shape.num_kv_heads * shape.head_dim + self._beside_values() + 2 * shape.intermediate_size
        of_products = self.tokens * self.element
        return attended + (wide + narrow) * of_products, attended + needed * of_products

    def head(self) -> tuple[float, float]:
        """Return the bytes that last norm, head and loss keep, and those that the loss holds besides."""
        trains = self.techniques.adapter is None
        logits = self.tokens * self.shape.vocab_size / self.matrix_parts * FP32
        if self.config.kernels.liger:
            # Liger's loss makes logits of few tokens at a time and keeps the gradient of its input instead.
            return self.tokens * (self._norm() + self.residual * self.element), 0.0
        if self.config.kernels.chunked_loss:
            return self.chunked_head()
        kept = self._norm() + self._gathered * self.element * trains
        return self.tokens * kept + KEPT_LOSS_COPIES * logits, (LOSS_COPIES - KEPT_LOSS_COPIES) * logits

    def chunked_head(self) -> tuple[float, float]:
        """Return the head's bytes where forward makes the gradients: they are kept, and few logits exist at a time."""
        hidden, trains = self.shape.hidden_size * self.element, self.techniques.adapter is None
        vocabulary = self.shape.vocab_size / self.matrix_parts
        kept = self.tokens * (self._norm() + hidden) + vocabulary * hidden * trains
        # A chunk's logits, their copy in fp32 where they have another dtype, and its log-softmax; the head's input too.
        copies = FP32 * (1 + (self.element != FP32)) + self.element
        return kept, min(LOSS_ROWS, self.tokens) * vocabulary * copies + self.tokens * hidden

    def last_stage_head(self) -> tuple[float, float]:
        """Return the same of a pipeline's last stage, over its passes in flight.

        Torch holds what a stage has given until its backward. Forward of all passes comes first in GPipe's schedules.
        """
        kept, passing = self.head()
        if self.dims.pp == 1 or self.config.engine.name == MEGATRON:
            return kept, passing
        given = 0 if self.config.kernels.chunked_loss else self.shape.vocab_size / self.matrix_parts
        passes = self.config.batch.accumulation if self.dims.schedule in _FORWARD_FIRST else 1
        return (kept + given * self.element * self.tokens) * passes, passing

    def between_stages(self) -> float:
        """Return the bytes of torch's buffers for what a stage receives in each pass, and of what it gave in flight.

        Megatron has a buffer at a time, and frees what it has sent.
        """
        if self.dims.pp == 1 or self.config.engine.name == MEGATRON:
            return 0.0
        passes = self.config.batch.accumulation
        a_stage = self.residual * self.element * self.tokens * (passes + passes_in_flight(self.dims, passes))
        return a_stage * self.dims.virtual_stages

    def mask(self) -> float:
        """Return the bytes of the causal mask, which all layers share, where they keep it to attend again."""
        again = self.techniques.attention_recomputation
        return self.squares / (self.shape.num_heads / self.matrix_parts) * self.element * again

    def _norm(self) -> float:
        """Return RMSNorm's bytes a token: its input in fp32, the root, and the result before a gain that trains."""
        if self._fused_kernels:
            return self.residual * self.element + FP32
        before_gain = self.element if self.techniques.adapter is None else 0
        return self.residual * (FP32 + before_gain) + FP32

    def _attention(self) -> float:
        """Return the bytes a token of attention's operands and of the inputs of its matrices."""
        queries = self.shape.num_heads * self.shape.head_dim / self.matrix_parts
        keys = self.shape.num_kv_heads * self.shape.head_dim / self.matrix_parts
        # The unfused products read keys and values that are repeated for every query head of their group.
        operands = queries + 2 * (keys if self._fused or self.techniques.attention_recomputation else queries)
        into = self._gathered * self.feeds_trained("q_proj", "k_proj", "v_proj")
        out = queries * (self._fused or self.feeds_trained("o_proj"))
        if self._fuses_as_megatron:
            # Values stay a view of one product with queries and keys, and turned queries and keys keep their angles.
            turned = queries + keys + 4 * self.shape.head_dim
            again = queries * (self.kept_of_inputs < self.element)
            return (operands + turned + out) * self.element + (into + again) * self.kept_of_inputs
        normed = (queries + keys) * (FP32 + self.element) * self.shape.qk_norm
        return (operands + into + out + self._beside_values()) * self.element + normed

    def _beside_values(self) -> int:
        """Return the elements of a token that live on because values are a view of one product, which holds them.

        Queries and keys are copied when they are turned. Norms in fp32 keep theirs, and with them the values'.
        """
        if not self.config.kernels.fused_projections or self.dims.cp_kind == "ulysses":
            return 0
        queries, keys = (heads * self.shape.head_dim for heads in (self.shape.num_heads, self.shape.num_kv_heads))
        kept = self._fused or self.techniques.attention_recomputation
        if self.shape.qk_norm and self.element == FP32:
            return 0 if kept else keys
        # The unfused product of a single sequence needs no copy of the values where each head has its own.
        return (queries + keys) * (kept or (self.micro == 1 and queries == keys))

    def _mlp(self) -> float:
        """Return the gated MLP's bytes a token, or those of the experts that the token is sent to."""
        wide = self.shape.intermediate_size / self.matrix_parts
        # Experts read the tokens that a rank has, before it gathers any.
        read = self.residual if self.shape.num_experts else self._gathered
        into = read * self.feeds_trained("gate_proj", "up_proj")
        sent = self._experts_of_token()
        if self.shape.num_experts and self._fuses_as_megatron:
            # Each expert gets a copy of its tokens, and weighs what its last matrix takes.
            return (sent * (5 * wide + self.residual) + into) * self.element
        # Fused kernels compute the activation again from the gate.
        products = wide * (2 if self._fused_kernels else 3)
        inputs = sent * wide * self.feeds_trained("down_proj") + into
        # Each expert gets a copy of its tokens, and its weighted result is kept.
        moved = 2 * self.residual * sent if self.shape.num_experts else 0
        return (sent * products + moved) * self.element + inputs * self.kept_of_inputs

    def _adapter(self) -> float:
        """Return the bytes a token of LoRA's narrow products."""
        lora = self.techniques.adapter == "lora"
        return self.config.adapter.rank * len(self.config.adapter.targets) * self.element * lora

    def scores(self) -> tuple[float, float]:
        """Return the bytes of a layer's attention matrices that are kept, and of those that exist in its backward."""
        copy = 0 if self.element == FP32 else self.element
        passing = self.squares * (2 * FP32 + copy)
        if self._fused:
            rows = self.micro * self.shape.num_heads / self.matrix_parts * self.seq_len / self.sequence_parts
            return rows * FP32, 0.0 if self.techniques.flash_attention else passing / self.sequence_parts
        if self.techniques.attention_recomputation:
            return 0.0, passing + self.squares * (FP32 + copy)
        return self.squares * (FP32 + copy), passing

    def _dequantized(self) -> float:
        """Return the bytes of the largest matrix of a layer, which 4-bit weights become while they are multiplied."""
        matrix = self.shape.hidden_size * self.shape.intermediate_size / self.matrix_parts
        return matrix * self.element * (self.techniques.quantization is not None)

    def _rounded(self) -> tuple[float, float, float]:
        """Return the scales that modules hold with precision.qat, what backward needs, and its steps in one matrix.

        torchao holds a scale and a zero point for each group, and keeps rounded matrices and their quotients in fp32.
        """
        if self.config.precision.qat is None:
            return 0.0, 0.0, 0.0
        sizes = [inputs * outputs for inputs, outputs in self.shape.matrices.values()]
        groups = sum(sizes) / self.config.precision.qat_group_size
        return 2 * FP32 * groups, sum(sizes) * (self.element + FP32) + FP32 * groups, 2.0 * FP32 * max(sizes)

    def _experts_of_token(self) -> int:
        return self.shape.experts_per_token or 1

    @property
    def _gathered(self) -> float:
        """Return the elements of a token that a matrix reads; Megatron keeps this rank's, and gathers them again."""
        return self.residual if self.config.engine.name == MEGATRON else self.shape.hidden_size

    @property
    def _fused_kernels(self) -> bool:
        """Tell whether norms and gated MLPs are single kernels, which keep their inputs."""
        return self.config.kernels.liger or self.techniques.compilation or self._fuses_as_megatron

    @property
    def _fuses_as_megatron(self) -> bool:
        """Tell whether Megatron's fusions run, and torch's RMSNorm on a GPU, of which it makes its layers."""
        return self.config.engine.name == MEGATRON and self.config.hardware.device == "cuda"

    @property
    def _fused(self) -> bool:
        """Tell whether attention keeps no scores: neither F's kernels do nor a ring, which has a block at a time."""
        return self.techniques.flash_attention or self.dims.cp_kind == "ring"


def activations(
    shape: ModelShape, config: TrainingConfig, techniques: Techniques, dims: ParallelDims, micro: int
) -> Activations:
    """Return the bytes of the fullest rank's activations with `micro` sequences a pass."""
    formula = Formula(shape, config, techniques, dims, micro)
    layer, (head, of_loss) = formula.layer(), formula.last_stage_head()
    for share in shares_of(techniques):
        layer = share.layer(layer, formula)
    head += formula.mask()
    between = formula.between_stages()
    layers = layers_in_flight(shape.num_layers, dims, config.batch.accumulation)
    last = layer.kept + layer.again + layer.passing
    recomputed = config.memory.recomputed_share(shape.num_layers)
    if techniques.recomputation and recomputed < 1:  # the last layer's backward comes first, and computes nothing again
        layer = replace(layer, kept=recomputed * layer.kept + (1 - recomputed) * layer.whole, again=0.0)
    if config.memory.activation_offload:
        at_once = max(head + of_loss, (layer.again or layer.kept) + layer.passing)
        made = Activations(
            round(between), round(at_once), round(layers * layer.kept + head), last=round(last + between)
        )
    else:
        in_layer = layer.again + layer.passing
        kept = layers * layer.kept + between
        passing = max(of_loss, in_layer - head, 0.0)
        made = Activations(round(kept + head), round(passing), first=round(kept + in_layer), last=round(last + between))
    for share in shares_of(techniques):
        made = share.activations(made, formula)
    return made


def layers_in_flight(layers: int, dims: ParallelDims, accumulation: int) -> float:
    """Return the layers whose activations the fullest rank holds at a time, a layer counted once for each pass.

    With the embedding as a layer, the first rank has a layer less, and the second one is passed a little less often.
    """
    passes = passes_in_flight(dims, accumulation)
    if not dims.ends_as_layers:
        return layers / dims.pp * passes
    each, stages = max(dims.rank_part.stage_layers(layers)), dims.virtual_stages
    if not dims.rank_part.embedding_as_layer or passes >= accumulation:
        return each * passes
    warm, fewer = (dims.pp, 1) if stages == 1 else (2 * dims.pp - 1, 2)
    return each * passes - min(warm, fewer * each / stages)


def passes_in_flight(dims: ParallelDims, accumulation: int) -> float:
    """Return the passes whose activations the first stage's rank holds at a time, in passes through all its layers.

    1F1B holds one for each stage after it (arXiv 2104.04473, section 2.2), GPipe all; interleaved stages a share more.
    """
    if dims.pp == 1 or dims.schedule is None:
        return 1.0
    if dims.schedule in _FORWARD_FIRST:
        return float(accumulation)
    extra = 0.0 if SCHEDULES[dims.schedule].most == 1 else (dims.pp - 1) / (dims.pp * dims.virtual_stages)
    return min(float(accumulation), dims.pp * (1 + extra))
