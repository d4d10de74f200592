"""The time of a step from its work and its machine's rates: what runs after what, and what hides what.

It takes numbers or numpy arrays: only arithmetic, no branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmexp.training.predict.rates import Rates
from llmexp.training.predict.work import Work

# How sharply the longer of two things that run at the same time decides: 1 would add them, infinity take the longer.
_SHARP = 4.0
BF16 = 2


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step by phase."""

    forward: Any
    again: Any
    """Forward passes that R runs again."""
    backward: Any
    exposed: Any
    """Communication that hides behind nothing."""
    optimizer: Any
    host: Any
    """The update on the host, and what travels for it."""

    @property
    def whole(self) -> Any:
        """The seconds of the whole step."""
        return self.forward + self.again + self.backward + self.exposed + self.optimizer + self.host

    @property
    def parts_s(self) -> dict[str, float]:
        """The seconds by part, for one step."""
        return {
            "forward": float(self.forward),
            "recomputation": float(self.again),
            "backward": float(self.backward),
            "communication": float(self.exposed),
            "update": float(self.optimizer),
            "update on the host": float(self.host),
        }


def step_time(work: Work, rates: Rates) -> StepTime:
    """Return the seconds of a step by phase."""
    w, r = work, rates
    products = w.products_flops / (r.peak_flops_per_s * r.products_share) * (1 + r.half_rows / w.tokens)
    elementwise = _elementwise(w, r)
    attention = w.score_elements * r.score_bytes / r.memory_bytes_per_s + w.attention_flops / (
        r.peak_flops_per_s * r.attention_share
    ) * (1 + r.attention_half_length / w.seq_len)
    dequantized = w.dequantized_parameters * r.dequantized_bytes / r.memory_bytes_per_s
    launches = w.layers * r.launch_s * r.adapter_launches**w.adapter * r.fused_launches**w.fused
    forward = _longer(products + elementwise + attention + dequantized, launches)
    behind = products * r.backward_products * (r.frozen_products / r.backward_products) ** w.frozen
    behind = behind + elementwise * r.backward_elementwise + attention * r.backward_attention + dequantized
    backward = _longer(behind, launches * r.backward_launches)
    computing = forward * (1 + w.recomputed) + backward
    exposed = _exposed(w, r, computing)
    accesses = r.fused_update * (r.unfused_update / r.fused_update) ** w.unfused_update
    update = w.update_bytes / r.memory_bytes_per_s * accesses
    host = w.host_parameters * r.host_s_per_parameter * r.host_zero3**w.zero3 + w.fetched_parameters * r.fetch_s
    passes = w.passes
    return StepTime(forward * passes, forward * w.recomputed * passes, backward * passes, exposed, update, host)


def _elementwise(w: Work, r: Rates) -> Any:
    passes = r.elementwise * r.fused_elementwise**w.fused * r.compiled_elementwise**w.compiled
    return w.hidden_elements * BF16 * passes / r.memory_bytes_per_s


def _exposed(w: Work, r: Rates, computing: Any) -> Any:
    """Return what communication adds to a step: it runs beside the computing of a pass, but for Z2's last gather."""
    reduced, gathered = w.reduced_bytes / r.link_bytes_per_s, w.gathered_bytes / r.link_bytes_per_s
    # The ranks of an adapter without ZeRO reduce gradients in fp32.
    all_reduced = 2 * reduced * r.adapter_gradients**w.adapter
    replicated = _longer(computing, all_reduced, r.overlap_replicated) - computing
    zero2 = _longer(computing, reduced, r.overlap_zero2) - computing + gathered
    # Every pass gathers for forward and for backward; each layer costs host time besides.
    layers = w.layers * r.zero3_layer_s * r.zero3_adapter**w.adapter * (1 + w.recomputed * r.zero3_again)
    zero3 = (_longer(computing, reduced + 2 * gathered, r.overlap_zero3) - computing + layers) * w.passes
    return w.replicated * replicated + w.zero2 * zero2 + w.zero3 * zero3


def _longer(one: Any, other: Any, sharp: Any = _SHARP) -> Any:
    """Return the longer of two times that overlap, or more where both are alike."""
    return (one**sharp + other**sharp) ** (1 / sharp)
