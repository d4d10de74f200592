"""The parts of a layer: each counts its own parameters, and the FLOPs and the cache of a token that goes through it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

Sides = tuple[int, int]
"""The inputs and the outputs of a matrix."""


class Part(ABC):
    """What a layer is made of. FLOPs are those of products; elementwise work such as norms and gates is left out."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The kind of the part."""

    @property
    @abstractmethod
    def matrices(self) -> tuple[Sides, ...]:
        """The matrices that a token is multiplied with."""

    @property
    def vectors(self) -> int:
        """The other parameters that a token meets: biases, gains of norms, filters of convolutions."""
        return 0

    @property
    def idle_parameters(self) -> int:
        """The parameters that a token does not meet."""
        return 0

    @property
    def active_parameters(self) -> int:
        """The parameters that a token meets."""
        return sum(inputs * outputs for inputs, outputs in self.matrices) + self.vectors

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.active_parameters + self.idle_parameters

    @property
    def flops_per_position(self) -> float:
        """The forward FLOPs of a token that do not depend on the sequence's length: 2 for each weight of a matrix."""
        return 2.0 * sum(inputs * outputs for inputs, outputs in self.matrices)


@dataclass(frozen=True)
class Reach:
    """The earlier tokens that a query sees: all of them, a sliding window, or those of its own chunk."""

    kind: Literal["full", "sliding", "chunked"] = "full"
    size: int = 0

    def keys(self, seq_len: float) -> float:
        """Return the mean number of keys of a query; half the sequence for full attention, as in `ModelShape`."""
        if self.is_full(seq_len):
            return seq_len / 2
        if self.kind == "sliding":
            return self.size - self.size**2 / (2 * seq_len)
        rest = seq_len % self.size
        return ((seq_len - rest) * self.size + rest**2) / (2 * seq_len)

    def is_full(self, seq_len: float) -> bool:
        """Tell whether the last token of such a sequence sees all others."""
        return self.kind == "full" or self.size >= seq_len

    def kept(self, seq_len: int) -> int:
        """Return how many tokens' keys and values decoding keeps."""
        return seq_len if self.kind == "full" else min(self.size, seq_len)


FULL = Reach()


class Mixer(Part):
    """The part of a layer that takes from other tokens of the sequence."""

    @property
    def reach(self) -> Reach | None:
        """The tokens that are attended to; None where a state stands for all earlier ones."""
        return None

    @property
    def flops_per_key(self) -> float:
        """The forward FLOPs of a token's products with the key and the value of another one."""
        return 0.0

    def attention_flops(self, seq_len: float) -> float:
        """Return the forward FLOPs of a token's attention, as a mean over a sequence of that length."""
        return self.flops_per_key * self.reach.keys(seq_len) if self.reach else 0.0

    @abstractmethod
    def cache_elements(self, seq_len: int) -> int:
        """Return the numbers that decoding keeps for a sequence: keys and values, or a state of one size."""

    def cache_share(self, cards: int) -> float:
        """Return the part of these that each of several cards keeps under tensor parallelism."""
        return 1.0 / cards


@dataclass(frozen=True)
class Mlp(Part):
    """Two matrices, or three with a gate (SwiGLU, arXiv 2002.05202)."""

    hidden: int
    width: int
    gated: bool = True
    bias: bool = False

    @property
    def words(self) -> str:
        """The kind of the part."""
        return "MLP"

    @property
    def matrices(self) -> tuple[Sides, ...]:
        """Up, gate and down."""
        return ((self.hidden, self.width),) * (1 + self.gated) + ((self.width, self.hidden),)

    @property
    def vectors(self) -> int:
        """A bias of each matrix."""
        return self.bias * sum(outputs for _, outputs in self.matrices)


@dataclass(frozen=True)
class Experts(Part):
    """MLPs of which a router takes `top_k` for a token (arXiv 1701.06538), and one that all tokens go through."""

    hidden: int
    expert: Mlp
    count: int
    top_k: int
    shared: Mlp | None = None
    shared_gate: bool = False
    router_bias: bool = False
    """Only one that is a parameter; that of DeepSeek-V3 is adjusted without gradients (arXiv 2412.19437, 2.1.2)."""

    @property
    def words(self) -> str:
        """The kind of the part."""
        return f"{self.top_k} of {self.count} experts" + " + a shared one" * (self.shared is not None)

    @property
    def matrices(self) -> tuple[Sides, ...]:
        """The router's, those of the experts that are taken, and those of the shared expert."""
        shared = self.shared.matrices if self.shared else ()
        gate = ((self.hidden, 1),) * self.shared_gate
        return ((self.hidden, self.count), *self.expert.matrices * self.top_k, *shared, *gate)

    @property
    def vectors(self) -> int:
        """The biases of the router and of the experts that are taken."""
        shared = self.shared.vectors if self.shared else 0
        return self.top_k * self.expert.vectors + shared + self.router_bias * self.count

    @property
    def idle_parameters(self) -> int:
        """Those of the other experts."""
        return (self.count - self.top_k) * self.expert.parameters
