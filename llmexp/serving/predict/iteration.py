"""The time of one iteration of a server: some sequences get a token each, and some prompts are read beside."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from llmexp.serving.predict.held import Held
from llmexp.serving.predict.rates import Rates

_HALF = 2


@dataclass(frozen=True)
class Iteration:
    """What is computed: means, so that numbers may be fractions."""

    decoding: float
    """Sequences that get a token."""
    context: float
    """Their tokens so far."""
    prefill: float = 0.0
    """Tokens of prompts."""
    prompt: float = 0.0
    """The length of a whole prompt."""

    @property
    def rows(self) -> float:
        """The rows of every product but for the head's."""
        return self.decoding + self.prefill


@dataclass(frozen=True)
class IterationTime:
    """Seconds by what they are spent on."""

    products: float
    cache: float
    attention: float
    elementwise: float
    communication: float
    host: float

    @property
    def whole(self) -> float:
        """The seconds of the iteration."""
        return self.products + self.cache + self.attention + self.elementwise + self.communication + self.host


def iteration_time(held: Held, rates: Rates, work: Iteration) -> IterationTime:
    """Return the seconds of an iteration by part."""
    rows = work.rows
    sampled = work.decoding + (work.prefill / work.prompt if work.prompt else 0.0)
    flops = 2.0 * (held.active * rows + held.head * sampled)
    reading = held.read_bytes(rows) / rates.weights_per_s
    products = longer(reading, flops / rates.flops_per_s, rates.sharp)
    cache = work.decoding * held.cache_bytes(work.context) / rates.cache_per_s
    passes = rows * rates.elementwise + work.prefill * rates.prompt_elementwise / held.cards
    elementwise = held.layers * held.hidden * _HALF * passes / rates.memory_per_s
    device = (products, cache, _attention(held, rates, work), elementwise, _communication(held, rates, rows))
    waiting = max(_launching(held, rates, work) - sum(device), 0.0)
    host = held.layers * rates.layer_s + rates.step_s + rates.request_s * sampled + waiting
    return IterationTime(*device, host)


def _launching(held: Held, rates: Rates, work: Iteration) -> float:
    """Return the seconds in which the host starts all kernels one by one; 0 where a graph starts them."""
    eager = held.layers * rates.eager_layer_s
    if not work.prefill:
        return eager
    return max(eager, held.layers * rates.prompt_layer_s + held.expert_layers * rates.prompt_expert_layer_s)


def longer(one: float, other: float, sharp: float) -> float:
    """Return the longer of two times, or more where both are alike."""
    most = max(one, other)
    return most * ((one / most) ** sharp + (other / most) ** sharp) ** (1 / sharp) if most else 0.0


def _attention(held: Held, rates: Rates, work: Iteration) -> float:
    """Return the seconds of attention between the tokens of prompts; short ones keep a device less busy."""
    if not work.prefill:
        return 0.0
    flops = held.prompt_flops(work.prompt) * work.prefill / work.prompt
    return flops / rates.attention_per_s * (1.0 + rates.attention_half_length / work.prompt)


def _communication(held: Held, rates: Rates, rows: float) -> float:
    """Return the seconds of two all-reduces a layer, which nothing hides; more cards take more rounds."""
    if held.cards == 1:
        return 0.0
    sent = 2.0 * (held.cards - 1) / held.cards * rows * held.hidden * _HALF
    return 2.0 * held.layers * (rates.all_reduce_s * sqrt(held.cards) + sent / rates.link_per_s)
