"""What bounds a server, by asking the prediction again with twice of each limit, and what lifts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.predict.batching import Limits, Server
from llmexp.serving.predict.prediction import load_of, request_of, server_of
from llmexp.serving.predict.rates import Rates

_Part = TypeVar("_Part", Rates, Limits)
_TWICE, _HALF = 2, 0.5
_OWN_WORK = ("layer_s", "eager_layer_s", "prompt_layer_s", "prompt_expert_layer_s", "step_s", "request_s")
# Below this share more of a limit is not worth a line.
_FELT = 0.01


@dataclass(frozen=True)
class ServingBound:
    """A limit, the share of tokens/s that twice of it would bring, and what lifts it, in words."""

    limit: str
    gain: float
    lift: str


@dataclass(frozen=True)
class _Limit:
    """A limit by name: what a person can do, and what doubles it."""

    name: str
    lifts: tuple[str, ...]
    rates: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    def left_for(self, options: Mapping[str, Any]) -> str:
        """Return in words what lifts it and is not done yet; a number can be raised further."""
        done = [f"{name}=" for name in options]
        return ", ".join(lift for lift in self.lifts if not any(name in lift for name in done))

    def doubled(self, server: Server) -> Server:
        """Return the server with twice of it."""
        rates, limits = _times(server.rates, self.rates), _times(server.limits, self.limits)
        return replace(server, rates=rates, limits=limits)


_LIMITS = (
    _Limit(
        "bytes of weights that each token reads",
        ("more requests at a time", "more devices a copy", "engine.options.quantization=fp8"),
        rates={"weights_per_s": _TWICE},
    ),
    _Limit(
        "bytes of keys and values that each token reads",
        ("more devices", "engine.options.kv_dtype=fp8"),
        rates={"cache_per_s": _TWICE},
    ),
    _Limit(
        "computing, of prompts above all",
        ("more devices", "engine.options.quantization=fp8 where cards compute in it"),
        rates={"flops_per_s": _TWICE, "attention_per_s": _TWICE, "memory_per_s": _TWICE},
    ),
    _Limit(
        "links between devices",
        ("a lower parallelism.tp with a higher parallelism.dp",),
        rates={"link_per_s": _TWICE, "all_reduce_s": _HALF},
    ),
    _Limit(
        "the server's own work between iterations",
        ("more copies", "another engine"),
        rates=dict.fromkeys(_OWN_WORK, _HALF),
    ),
    _Limit(
        "room for keys and values",
        ("more devices a copy", "engine.options.kv_dtype=fp8", "engine.options.memory_fraction=0.95"),
        limits={"cache_bytes": _TWICE},
    ),
    _Limit(
        "requests at a time",
        ("a higher engine.options.max_sequences",),
        limits={"requests": _TWICE},
    ),
)


def bounds_of(plan: ServingPlan) -> list[ServingBound]:
    """Return the limits of a predicted plan that more would lift, the one that brings most first."""
    server = server_of(plan)
    speed = _speed(plan)
    now = speed(server)
    found = [
        ServingBound(one.name, speed(one.doubled(server)) / now - 1, one.left_for(plan.config.engine.options))
        for one in _LIMITS
    ]
    return sorted((one for one in found if one.gain >= _FELT), key=lambda one: -one.gain)


def _speed(plan: ServingPlan) -> Callable[[Server], float]:
    """Return what tells a server's speed: the most of its closed loads, else requests/s where it is saturated."""
    closed = [load_of(plan, point) for point in plan.points if point.concurrency]
    if closed:
        return lambda server: max(server.outcome(load).requests_per_s for load in closed)
    return lambda server: server.saturation_per_s(request_of(plan))


def _times(part: _Part, factors: Mapping[str, float]) -> _Part:
    changed: dict[str, Any] = {name: getattr(part, name) * factor for name, factor in factors.items()}
    return replace(part, **changed)
