"""The bytes that layers with a state instead of attention keep for backward, as torch computes them in transformers.

Counted is the code of transformers 5.23 that needs no further library: it computes in chunks, in fp32. The kernels of
mamba-ssm and flash-linear-attention keep less.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from llmexp.inputs.architecture.mixers import GatedDeltaNet, Mamba2

FP32 = 4
DELTA_CHUNK = 64


@dataclass(frozen=True)
class PassSizes:
    """A micro batch on one rank, and the bytes of an element in the parameters' dtype."""

    count: int
    seq_len: int
    element: int

    @property
    def tokens(self) -> int:
        """Tokens of the micro batch."""
        return self.count * self.seq_len

    @property
    def converted(self) -> bool:
        """Tell whether fp32 takes copies."""
        return self.element != FP32

    def filled(self, chunk: int) -> int:
        """Return the tokens with those that fill up each sequence's last chunk."""
        return self.count * ceil(self.seq_len / chunk) * chunk


@dataclass(frozen=True)
class MixerBytes:
    """What a mixer keeps for backward, and the most that its backward holds besides, in bytes."""

    for_backward: float
    passing: float


def delta_net(mixer: GatedDeltaNet, batch: PassSizes) -> MixerBytes:
    """Return the bytes of a gated delta net."""
    heads, values = mixer.value_heads, mixer.value_heads * mixer.value_dim
    # Keys and queries are repeated for every head of values.
    keys = mixer.value_heads * mixer.key_dim
    element, tokens = batch.element, batch.filled(DELTA_CHUNK)
    # Queries and keys before their norms, and what the gated norm of the result multiplies, fill no chunk.
    before = 2 * keys + (3 * values if batch.converted else 0)
    # Keys, and both and k_cumdecay as products read them; values, and what is new in them before and after the scan.
    # Where fp32 takes no copies and nothing is filled up, products make four.
    in_order = batch.converted or bool(batch.seq_len % DELTA_CHUNK)
    of_keys, of_values = 6 if in_order else 10, 3 if batch.converted else 6
    scores, states = 5 * heads * DELTA_CHUNK, keys * mixer.value_dim / DELTA_CHUNK
    in_fp32 = of_keys * keys + of_values * values + scores + states + 9 * heads
    of_chunks = FP32 * (in_fp32 * tokens + before * batch.tokens)
    # With a head of keys for each of values, the gate is a view of one product with all of them.
    viewed = mixer.channels * (mixer.key_heads == heads and not batch.converted)
    narrow = (mixer.hidden + mixer.channels + 3 * values + heads + viewed) * element * batch.tokens
    passing = FP32 * (heads * DELTA_CHUNK + 2 * keys + values) * tokens
    return MixerBytes(of_chunks + narrow + _convolved(mixer, batch), passing)


def mamba2(mixer: Mamba2, batch: PassSizes) -> MixerBytes:
    """Return the bytes of a Mamba-2 layer's mixer."""
    inner, states, element = mixer.inner, mixer.heads * mixer.state, batch.element
    chunks, tokens = ceil(batch.seq_len / mixer.chunk), batch.filled(mixer.chunk)
    scores = 3 * mixer.heads * mixer.chunk
    # Products read copies of B and C, which every head repeats, unless there is a single chunk.
    copied = 5 if batch.count * chunks > 1 else 3
    in_fp32 = scores + copied * states + 5 * inner + (3 + batch.converted) * mixer.heads
    # The scan's inputs before they are filled up, and what the gated norm of its result multiplies.
    before = (5 if batch.converted else 3) * inner
    between = mixer.heads * ((2 * chunks + 1) * mixer.head_dim * mixer.state + (chunks + 1) ** 2) * batch.count
    # In fp32 the scan's inputs are a view of what the convolution gives, which all stays.
    whole = inner + mixer.channels + mixer.heads + (0 if batch.converted else mixer.channels)
    narrow = (mixer.hidden + inner + whole + 2 * mixer.heads) * element * batch.tokens
    made = FP32 * (in_fp32 * tokens + before * batch.tokens + between) + narrow
    passing = FP32 * (mixer.heads * mixer.chunk + states) * tokens
    return MixerBytes(made + _convolved(mixer, batch), passing)


def _convolved(mixer: GatedDeltaNet | Mamba2, batch: PassSizes) -> int:
    """Return the bytes of a convolution's result, with the rest that is cut off at the end of each sequence."""
    return mixer.channels * (batch.seq_len + mixer.kernel - 1) * batch.count * batch.element
