"""The metrics of a run of task=serve: the best of its load points, and what its server took."""

from __future__ import annotations

from collections.abc import Callable

from llmexp.analysis.metric import Metrics, Shown
from llmexp.analysis.quantity import Measurement
from llmexp.record.digits import GIB
from llmexp.serving.analysis.load_judgment import why_no_figures
from llmexp.serving.analysis.server_load import of_gpus, resident_bytes
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.points import ServingRepeat, requests_of, values
from llmexp.serving.record.quality import QualitySummary

METRICS = Metrics()


@METRICS.add("output tokens/s", "higher")
def output_tokens_per_s(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Tokens generated per second, at the load point with the most; docs/numbers.md defines the time span."""
    return _highest("output_tokens_per_s", repeat, plan)


@METRICS.add("tokens/s", "higher", Shown("tokens/s, in and out", ",.0f", dispensable=5))
def total_tokens_per_s(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Tokens of prompts and outputs per second, at the load point with the most."""
    return _highest("total_tokens_per_s", repeat, plan)


@METRICS.add("requests/s", "higher", Shown("requests/s", "g"))
def requests_per_s(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Requests answered per second, at the load point with the most."""
    return _highest("requests_per_s", repeat, plan)


@METRICS.add("requests/s", "higher", Shown("goodput, requests/s", "g", dispensable=4))
def goodput_per_s(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Requests per second that met serve.slo, at the load point with the most."""
    return _highest("goodput_per_s", repeat, plan)


@METRICS.add("s", "lower", Shown("server start, s", ",.1f", dispensable=2))
def server_start_s(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Seconds from the start of the server to its readiness."""
    return _of(repeat.ranks[0].server_start_s)


@METRICS.add("bytes", "lower", Shown("server memory, GiB", ",.2f", 1 / GIB, dispensable=3))
def server_peak_resident_bytes(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Host memory of the server's processes together, the largest reading."""
    found = [value for _, value in resident_bytes(repeat.server)]
    return Measurement(max(found)) if found else None


@METRICS.add("bytes", "lower", Shown("GPU memory, GiB", ",.2f", 1 / GIB, dispensable=2))
def gpu_peak_memory_bytes(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Memory in use on the server's GPUs together, weights and KV cache included, the largest reading."""
    found = [value for _, value in of_gpus(repeat.server, lambda gpu: gpu.memory_used_bytes)]
    return Measurement(max(found)) if found else None


@METRICS.add("bytes", "lower", Shown("weights, GiB", "g", 1 / GIB, dispensable=1))
def weights_bytes(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """All weights of the model as stored on the server's devices, summed."""
    return _of(repeat.ranks[0].held.weights_bytes)


@METRICS.add("bytes", "", Shown("KV cache, GiB", "g", 1 / GIB, dispensable=1))
def kv_cache_bytes(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """The KV cache that the server reserved on its devices, summed."""
    return _of(repeat.ranks[0].held.kv_cache_bytes)


@METRICS.add("tokens", "", Shown("KV cache, tokens", ",.0f", dispensable=1))
def kv_cache_tokens(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Tokens that fit into the KV cache, in all copies of the model together."""
    return _of(repeat.ranks[0].held.kv_cache_tokens)


@METRICS.add("share", "higher", Shown("answers agree, %", "g", 100, dispensable=4))
def agreeing_tokens_share(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Share of the greedy tokens of serve.quality that are one process's, of those that count."""
    found = repeat.ranks[0].quality
    return _of(found.agreeing_tokens / found.counted_tokens if found and found.counted_tokens else None)


@METRICS.add("tokens")
def counted_tokens(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Tokens of serve.quality that count: one process prefers its likeliest token by more than margin_noise_nats."""
    return _of_quality(repeat, lambda found: found.counted_tokens)


@METRICS.add("nats")
def margin_noise_nats(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """The margin from which greedy tokens count: twice the largest that rounding was seen to change."""
    return _of_quality(repeat, lambda found: found.noise_nats)


@METRICS.add("nats", "lower")
def logprob_difference_p50_nats(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Median difference of the server's logprobs from one process's; none where the server tells no logprobs."""
    return _of_quality(repeat, lambda found: found.logprob_difference_p50_nats)


@METRICS.add("nats", "lower")
def logprob_difference_max_nats(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Largest difference of the server's logprobs from one process's."""
    return _of_quality(repeat, lambda found: found.logprob_difference_max_nats)


@METRICS.add("nats")
def logprob_noise_p50_nats(repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Median difference of the same logprobs that rounding alone makes, in the process itself."""
    return _of_quality(repeat, lambda found: found.logprob_noise_p50_nats)


def _of_quality(repeat: ServingRepeat, read: Callable[[QualitySummary], float | None]) -> Measurement | None:
    found = repeat.ranks[0].quality
    return _of(read(found)) if found else None


def _of(value: float | None) -> Measurement | None:
    return None if value is None else Measurement(value)


def _highest(name: str, repeat: ServingRepeat, plan: ServingPlan) -> Measurement | None:
    """Return the highest value of all load points that did the work that was asked for."""
    each = [requests_of(repeat, point) for point in repeat.loads(plan)]
    found = [dict(values(samples, plan)).get(name) for samples in each if not why_no_figures([samples])]
    known = [value for value in found if value is not None]
    return Measurement(max(known)) if known else None
