"""The time of a step from its work and its machine's rates: what runs after what, and what hides what.

It takes numbers or numpy arrays: only arithmetic, no branches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from llmexp.training.predict.rates import Rates
from llmexp.training.predict.work import Work

# How sharply the longer of two things that run at the same time decides: 1 would add them, infinity take the longer.
_SHARP = 4.0
# Products n times as narrow need n to this power as many rows. Measured products 1,024 wide (rates.py has the source)
# need 3 to 5 times the rows of those 8,192 wide, on A100 and H100.
_NARROW = 0.7
# Of what tensor parallelism sends beside products, how much they hide: both share the device. Published runs err alike
# with half and with all; of layouts that experts published advice finds 18 of 23 with half, and 16 with all.
_HIDES = 0.5
# What each doubling of nodes adds to a step beside what links take, as all wait for the slowest. Published runs of 16
# sources differ in nodes alone: a doubling took 2.3 % more than predicted, in the median over them. On common cards the
# median error over sources is less with this than with nothing, and than with twice as much.
_A_DOUBLING = 1.005
# Keeps the longer of two zeros a number, and what is less than rounding from being a part.
_INSTANT, _ROUNDING_S = 1e-12, 1e-9


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step by phase."""

    forward: Any
    again: Any
    """Forward passes that R runs again."""
    backward: Any
    exposed: Any
    """Communication of gradients and parameters that hides behind nothing."""
    optimizer: Any
    host: Any
    """The update on the host, and what travels for it."""
    tensor: Any = 0.0
    context: Any = 0.0
    experts: Any = 0.0
    stages: Any = 0.0
    """What stages wait for each other, and send."""
    activations: Any = 0.0
    """Activations on their way to host memory and back."""
    stragglers: Any = 0.0
    """What nodes wait for the slowest of them."""

    @property
    def whole(self) -> Any:
        """The seconds of the whole step."""
        passes = self.forward + self.again + self.backward + self.activations
        links = self.tensor + self.context + self.experts + self.stages + self.exposed
        return passes + links + self.optimizer + self.host + self.stragglers

    @property
    def parts_s(self) -> dict[str, float]:
        """The seconds by part, for one step; those of parallelism and offload only where there are any."""
        always = {
            "forward": self.forward,
            "recomputation": self.again,
            "backward": self.backward,
            "communication": self.exposed,
            "update": self.optimizer,
            "update on the host": self.host,
        }
        some = {
            "tensor parallelism": self.tensor,
            "context parallelism": self.context,
            "expert parallelism": self.experts,
            "pipeline": self.stages,
            "activation offload": self.activations,
            "stragglers": self.stragglers,
        }
        there = {name: part for name, part in some.items() if part > _ROUNDING_S}
        return {name: float(part) for name, part in (always | there).items()}


@dataclass(frozen=True)
class _Pass:
    """The seconds of one pass: computing, and what parallelism adds."""

    forward: Any
    again: Any
    """What backward begins with where a forward pass runs again."""
    backward: Any
    products: Any
    """The products of forward, beside which some programs communicate."""
    behind: Any
    """The products of backward, beside which it communicates."""
    attention: Any

    @property
    def computing(self) -> Any:
        """The seconds of forward, of forward again, and of backward."""
        return self.forward + self.again + self.backward


def step_time(work: Work, rates: Rates) -> StepTime:
    """Return the seconds of a step by phase."""
    w, r, one = work, rates, _pass(work, rates)
    exposed = _exposed(w, r, one.computing)
    accesses = r.fused_update * (r.unfused_update / r.fused_update) ** w.unfused_update
    update = w.update_bytes / r.memory_bytes_per_s * accesses
    updated = w.host_parameters * r.host_s_per_parameter * r.host_zero3**w.zero3 * r.host_adapter**w.adapter
    host = updated + w.fetched_parameters * r.fetch_s
    n = w.passes
    tensor, context, experts = _tensor(w, r, one), _context(w, r, one), _experts(w, r)
    stages = _stages(w, r, one, one.computing + tensor + context + experts)
    activations = 2 * w.offloaded_activation_bytes / r.host_link_bytes_per_s
    step = StepTime(
        forward=one.forward * n,
        again=one.again * n,
        backward=one.backward * n,
        tensor=tensor * n,
        context=context * n,
        experts=experts * n,
        stages=stages * n,
        activations=activations * n,
        exposed=exposed,
        optimizer=update,
        host=host,
    )
    return replace(step, stragglers=step.whole * (_A_DOUBLING**w.node_doublings - 1))


def _pass(w: Work, r: Rates) -> _Pass:
    products, elementwise, attention = _products(w, r), _elementwise(w, r), _attention(w, r)
    dequantized = w.dequantized_parameters * r.dequantized_bytes / r.memory_bytes_per_s
    launches = w.launched_layers * r.launch_s * r.adapter_launches**w.adapter * r.fused_launches**w.fused
    fp8, casts, casts_behind = _fp8(w, r), *_casts(w, r)
    forward_launches = launches + w.cast_layers * r.launch_s
    others = casts + elementwise + dequantized
    forward = _longer(products + fp8 + others + attention, forward_launches)
    products_again = (products + fp8) * (1 - w.kept_products) + attention * (1 - w.kept_attention)
    again = _longer(products_again + others, forward_launches) * w.recomputed
    behind = products * _products_behind(w, r) + _fp8_behind(w, r, fp8)
    attended = attention * (r.backward_attention + w.attention_again)
    # It streams through memory as the fused update does.
    added = w.added_bytes / r.memory_bytes_per_s * r.fused_update
    kernels = behind + casts_behind + elementwise * r.backward_elementwise + attended + dequantized + added
    launches_behind = launches * r.backward_launches + w.cast_layers_behind * r.launch_s
    return _Pass(forward, again, _longer(kernels, launches_behind), products + fp8, behind, attention)


def _products(w: Work, r: Rates) -> Any:
    """Return the seconds of the products of one forward pass."""
    speed = r.peak_flops_per_s * r.products_share
    half, of_experts = (r.half_rows * narrow**_NARROW for narrow in (w.narrow, w.expert_narrow))
    return (w.products_flops * (1 + half / w.tokens) + w.expert_flops * (1 + of_experts / w.expert_rows)) / speed


def _products_behind(w: Work, r: Rates) -> Any:
    """Return the time of backward's products over that of forward's."""
    return r.backward_products * (r.frozen_products / r.backward_products) ** w.frozen


def _fp8(w: Work, r: Rates) -> Any:
    """Return the seconds of the products in fp8 of one forward pass: faster ones take more rows to be as fast."""
    half = r.half_rows * r.fp8_flops_per_s / r.peak_flops_per_s * w.fp8_narrow**_NARROW
    return w.fp8_flops * (1 + half / w.tokens) / (r.fp8_flops_per_s * r.fp8_share)


def _fp8_behind(w: Work, r: Rates, fp8: Any) -> Any:
    """Return the same of backward, where gradients of weights may be multiplied in 16 bits, or not at all."""
    half = r.half_rows * w.narrow**_NARROW
    in_16_bits = w.fp8_flops * (1 + half / w.tokens) / (r.peak_flops_per_s * r.products_share)
    both = r.backward_products / 2 * (fp8 * (2 - w.weights_in_16_bits) + in_16_bits * w.weights_in_16_bits)
    return both * (r.frozen_products / r.backward_products) ** w.frozen


def _casts(w: Work, r: Rates) -> tuple[Any, Any]:
    """Return the seconds of casts in forward and in backward."""
    speed = r.memory_bytes_per_s / r.cast_accesses
    return w.cast_bytes / speed, w.cast_bytes_behind / speed


def _attention(w: Work, r: Rates) -> Any:
    fused = w.attention_flops / (r.peak_flops_per_s * r.attention_share) * (1 + r.attention_half_length / w.seq_len)
    return w.score_elements * r.score_bytes / r.memory_bytes_per_s + fused


def _elementwise(w: Work, r: Rates) -> Any:
    fusions = r.compiled_elementwise**w.compiled * r.megatron_elementwise**w.megatron
    passes = r.elementwise * r.fused_elementwise**w.fused * fusions
    return (w.hidden_bytes * passes + w.moved_bytes) / r.memory_bytes_per_s


def _tensor(w: Work, r: Rates, one: _Pass) -> Any:
    """Return what tensor parallelism adds to a pass: products of some programs hide a part of it.

    Layers that compute the gradients of weights beside it gather the inputs of matrices for them once more; others have
    kept them.
    """
    sent = w.tensor_bytes / r.tensor_bytes_per_s + w.tensor_calls * r.tensor_delay_s
    forward = _half_hidden(sent, one.products, w.tensor_beside_forward) * (1 + w.recomputed)
    # Of the four times that a layer gathers or scatters, two gather.
    again = sent * w.sequence / 2 * w.tensor_beside
    return forward + _half_hidden(sent + again, one.behind / 2, w.tensor_beside)


def _half_hidden(sent: Any, products: Any, beside: Any) -> Any:
    """Return what remains to wait for: all that is sent, or, beside products, what these do not hide."""
    return sent - beside * _HIDES * (sent - _beyond(sent, products))


def _context(w: Work, r: Rates, one: _Pass) -> Any:
    """Return what context parallelism adds: keys and values go round beside attention, and twice in backward."""
    delay, attended = w.context_calls * r.context_delay_s, one.attention
    ring = w.ring_bytes / r.context_bytes_per_s
    forward = _beyond(ring, attended) * (1 + w.recomputed)
    swapped = w.ulysses_bytes / r.context_bytes_per_s * (2 + w.recomputed)
    return forward + _beyond(2 * ring, attended * r.backward_attention) + swapped + delay * (2 + w.recomputed)


def _experts(w: Work, r: Rates) -> Any:
    """Return the seconds in which tokens travel to their experts and back, in forward and in backward."""
    return (w.expert_bytes / r.expert_bytes_per_s + w.expert_calls * r.expert_delay_s) * (2 + w.recomputed)


def _stages(w: Work, r: Rates, one: _Pass, busy: Any) -> Any:
    """Return what a pipeline adds to a pass: the bubble, and sending, beside computing where stages interleave.

    While one stage waits, the others compute, which have no head.
    """
    head = w.head_flops / (r.peak_flops_per_s * r.products_share) * (1 + _products_behind(w, r))
    sent = 2 * (w.stage_bytes / r.stage_bytes_per_s + w.stage_calls * r.stage_delay_s)
    hidden = _beyond(sent, one.computing)
    return (busy - head) * w.bubble + sent * (1 - w.stages_overlap) + hidden * w.stages_overlap


def _exposed(w: Work, r: Rates, computing: Any) -> Any:
    """Return what communication adds to a step: it runs beside the computing of a pass, but for Z2's last gather."""
    reduced = w.reduced_bytes / r.link_bytes_per_s + w.copied_bytes / r.copies_bytes_per_s
    gathered = w.gathered_bytes / r.link_bytes_per_s
    # The ranks of an adapter without ZeRO reduce gradients in fp32.
    all_reduced = 2 * reduced * r.adapter_gradients**w.adapter
    replicated = _longer(computing, all_reduced, r.overlap_replicated) - computing
    zero2 = (_longer(computing, reduced, r.overlap_zero2) - computing) * (1 + w.reduced_before) + gathered
    beside = _longer(computing, reduced + gathered, r.overlap_replicated) - computing
    beside += (_longer(computing, reduced, r.overlap_replicated) - computing) * w.reduced_before
    # Every pass gathers for forward and for backward; each layer costs host time besides.
    hooks = w.layers * r.zero3_layer_s * r.zero3_adapter**w.adapter * (1 + w.recomputed * r.zero3_again)
    delays = 3 * w.layers * r.delay_s
    zero3 = _longer(computing, reduced + 2 * gathered + delays, r.overlap_zero3) - computing + hooks * w.zero3_hooks
    once = w.replicated * replicated + w.zero2 * zero2 + w.zero2_beside * beside
    return once + w.zero3 * zero3 * w.passes


def _beyond(sent: Any, hidden_by: Any) -> Any:
    """Return how much longer two things that overlap take than the second alone."""
    return _longer(sent, hidden_by + _INSTANT) - hidden_by - _INSTANT


def _longer(one: Any, other: Any, sharp: Any = _SHARP) -> Any:
    """Return the longer of two times that overlap, or more where both are alike."""
    return (one**sharp + other**sharp) ** (1 / sharp)
