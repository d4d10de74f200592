"""What mixes tokens in a layer: attention with its variants, and layers that keep a state instead."""

from __future__ import annotations

from dataclasses import dataclass

from llmexp.inputs.architecture.parts import FULL, Mixer, Reach, Sides


@dataclass(frozen=True)
class Attention(Mixer):
    """Grouped-query attention (arXiv 2305.13245)."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    norm_gains: int = 0
    """Of the norms of queries and keys."""
    gated: bool = False
    """Queries come with a gate of the result, as in Qwen3-Next (transformers, modeling_qwen3_next)."""
    sinks: bool = False
    """A learned logit for each head (gpt-oss; arXiv 2309.17453)."""
    within: Reach = FULL

    @property
    def words(self) -> str:
        """The kind of the part."""
        size = f" within {self.within.size}" * bool(self.within.size)
        return f"{self.within.kind} attention{size}".removeprefix("full ")

    @property
    def reach(self) -> Reach:
        """The tokens that are attended to."""
        return self.within

    @property
    def matrices(self) -> tuple[Sides, ...]:
        """Query (with the gate), key, value and output."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        wide = queries * (1 + self.gated)
        return (self.hidden, wide), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden)

    @property
    def vectors(self) -> int:
        """Biases, gains and sinks."""
        *inward, outward = (outputs for _, outputs in self.matrices)
        biases = self.qkv_bias * sum(inward) + self.output_bias * outward
        return biases + self.norm_gains + self.sinks * self.heads

    @property
    def flops_per_key(self) -> float:
        """Those of a score and of a weighted value, in all heads."""
        return 4.0 * self.heads * self.head_dim

    def cache_elements(self, seq_len: int) -> int:
        """Return the numbers of keys and values."""
        return 2 * self.kv_heads * self.head_dim * self.within.kept(seq_len)

    def cache_share(self, cards: int) -> float:
        """Return the part of whole heads, of which cards beyond their number keep copies."""
        return max(1.0 / cards, 1.0 / self.kv_heads)


@dataclass(frozen=True)
class LatentAttention(Mixer):
    """Multi-head latent attention (arXiv 2405.04434, section 2.1; transformers, modeling_deepseek_v3)."""

    hidden: int
    heads: int
    query_rank: int | None
    kv_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    bias: bool = False

    @property
    def words(self) -> str:
        """The kind of the part."""
        return "latent attention"

    @property
    def reach(self) -> Reach:
        """All earlier tokens."""
        return FULL

    @property
    def _narrow(self) -> tuple[Sides, ...]:
        """The matrices into the latents and out of attention, which alone may have biases."""
        queries = ((self.hidden, self.query_rank),) if self.query_rank else ()
        latent = self.hidden, self.kv_rank + self.rotary_dim
        return *queries, latent, (self.heads * self.value_dim, self.hidden)

    @property
    def matrices(self) -> tuple[Sides, ...]:
        """Those of latents, and those from latents to heads."""
        queries = self.query_rank or self.hidden, self.heads * (self.plain_dim + self.rotary_dim)
        return *self._narrow, queries, (self.kv_rank, self.heads * (self.plain_dim + self.value_dim))

    @property
    def vectors(self) -> int:
        """The gains of the latents' norms, and biases."""
        return (self.query_rank or 0) + self.kv_rank + self.bias * sum(outputs for _, outputs in self._narrow)

    @property
    def flops_per_key(self) -> float:
        """Those with keys and values of whole heads, as training computes them."""
        return 2.0 * self.heads * (self.plain_dim + self.rotary_dim + self.value_dim)

    def cache_elements(self, seq_len: int) -> int:
        """Return the numbers of latents and rotated keys (the paper's section 2.1.4)."""
        return (self.kv_rank + self.rotary_dim) * seq_len

    def cache_share(self, cards: int) -> float:
        """Return 1: all heads need all latents."""
        return 1.0


@dataclass(frozen=True)
class GatedDeltaNet(Mixer):
    """Linear attention whose state forgets and is corrected (arXiv 2412.06464; transformers, modeling_qwen3_next)."""

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def words(self) -> str:
        """The kind of the part."""
        return "gated delta net"

    @property
    def channels(self) -> int:
        """Queries, keys and values, which go through the convolution."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def matrices(self) -> tuple[Sides, ...]:
        """Queries, keys, values and their gate; two numbers for each head; output."""
        values = self.value_heads * self.value_dim
        return (self.hidden, self.channels + values), (self.hidden, 2 * self.value_heads), (values, self.hidden)

    @property
    def vectors(self) -> int:
        """The convolution's filters, the decay and its bias by head, and the gains of the result's norm."""
        return self.kernel * self.channels + 2 * self.value_heads + self.value_dim

    @property
    def flops_per_position(self) -> float:
        """Those of the state are 3 products of its size: its value for a key, the correction, and the query's value."""
        state = 6.0 * self.value_heads * self.key_dim * self.value_dim
        return super().flops_per_position + 2.0 * self.kernel * self.channels + state

    def cache_elements(self, seq_len: int) -> int:
        """Return the numbers of the state, and of the convolution's last inputs."""
        return self.value_heads * self.key_dim * self.value_dim + self.kernel * self.channels


@dataclass(frozen=True)
class Mamba2(Mixer):
    """A state space of heads with one decay each (arXiv 2405.21060; transformers, modeling_mamba2)."""

    hidden: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    bias: bool = False
    conv_bias: bool = True
    chunk: int = 256
    """Tokens that are computed together, by products of all pairs of them."""
    residual_in_fp32: bool = True
    """The hidden states between layers are in fp32, whatever the parameters' dtype."""

    @property
    def words(self) -> str:
        """The kind of the part."""
        return "Mamba-2"

    @property
    def inner(self) -> int:
        """Elements of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Inputs, B and C, which go through the convolution."""
        return self.inner + 2 * self.groups * self.state

    @property
    def matrices(self) -> tuple[Sides, ...]:
        """Gate, inputs, B, C and time steps; output."""
        return (self.hidden, self.inner + self.channels + self.heads), (self.inner, self.hidden)

    @property
    def vectors(self) -> int:
        """The convolution's, three numbers for each head, and the gains of the gated norm."""
        biases = self.bias * sum(outputs for _, outputs in self.matrices)
        return (self.kernel + self.conv_bias) * self.channels + 3 * self.heads + self.inner + biases

    @property
    def flops_per_position(self) -> float:
        """Those of the state are 2 products of its size: what the token adds, and what it reads."""
        state = 4.0 * self.inner * self.state
        return super().flops_per_position + 2.0 * self.kernel * self.channels + state

    def cache_elements(self, seq_len: int) -> int:
        """Return the numbers of the state, and of the convolution's last inputs."""
        return self.inner * self.state + self.kernel * self.channels


@dataclass(frozen=True)
class Mamba(Mixer):
    """A state space of channels (arXiv 2312.00752) with Jamba's norms (transformers, modeling_jamba)."""

    hidden: int
    inner: int
    state: int
    step_rank: int
    kernel: int
    bias: bool = False
    conv_bias: bool = True

    @property
    def words(self) -> str:
        """The kind of the part."""
        return "Mamba"

    @property
    def matrices(self) -> tuple[Sides, ...]:
        """Inputs and gate; time steps, B and C; time steps of channels; output."""
        steps = self.inner, self.step_rank + 2 * self.state
        return (self.hidden, 2 * self.inner), steps, (self.step_rank, self.inner), (self.inner, self.hidden)

    @property
    def vectors(self) -> int:
        """The convolution's, the decays, D and a bias of each channel, and the gains of the norms of time steps, B, C.

        The projections into and out of the layer may have biases.
        """
        norms, biases = self.step_rank + 2 * self.state, self.bias * (2 * self.inner + self.hidden)
        return self.inner * (self.kernel + self.conv_bias + self.state + 2) + norms + biases

    @property
    def flops_per_position(self) -> float:
        """Those of the state are 2 products of its size: what the token adds, and what it reads."""
        return super().flops_per_position + 2.0 * self.kernel * self.inner + 4.0 * self.inner * self.state

    def cache_elements(self, seq_len: int) -> int:
        """Return the numbers of the state, and of the convolution's last inputs."""
        return self.inner * (self.state + self.kernel)
