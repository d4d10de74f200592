"""What a server told of itself over a load point, and what its tokens cost in energy and money."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmexp.serving.analysis.load_window import LoadWindow
from llmexp.serving.analysis.server_load import LoadLevel, ServerLoad, server_load
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.record.requests import RequestSample
from llmexp.serving.record.server_samples import ServerSample

LEVELS = {
    "running": "running_requests",
    "waiting": "waiting_requests",
    "kv_used_share": "kv_used_share",
    "resident_bytes": "server_resident_bytes",
    "gpu_memory_bytes": "gpu_memory_bytes",
    "gpu_power_w": "gpu_power_w",
    "sm_clock_megahertz": "sm_clock_megahertz",
}
# Of a load that was over before the page was read so often, they show what was before and after it.
OF_PAGES, FEWEST_PAGES = ("running", "waiting", "kv_used_share"), 3
COUNTS = {
    "preemptions": "preemptions",
    "generated_tokens": "server_generated_tokens",
    "prefix_hit_ratio": "prefix_hit_ratio",
    "transferred_tokens": "transferred_prompt_tokens",
    "draft_acceptance_ratio": "draft_acceptance_ratio",
    "tokens_per_draft_step": "tokens_per_draft_step",
    "cpu_cores": "server_cpu_cores",
}


def server_values(
    samples: Sequence[RequestSample], server: Sequence[ServerSample], plan: ServingPlan
) -> dict[str, float]:
    """Return the server's figures over the time of these requests, as far as it told them, and the cost of tokens."""
    if not samples:
        return {}
    window = LoadWindow.of(samples)
    found = server_load(server, window.begin_s, window.end_s)
    tokens = sum(sample.amount for sample in samples)
    return dict(_told(found)) | dict(_cost(found, tokens, window.seconds, plan))


def _told(found: ServerLoad) -> Iterator[tuple[str, float]]:
    for name, metric in LEVELS.items():
        level: LoadLevel | None = getattr(found, name)
        if level and (found.pages >= FEWEST_PAGES or name not in OF_PAGES):
            yield f"{metric}_mean", level.mean
            yield f"{metric}_peak", level.peak
    for name, metric in COUNTS.items():
        value = getattr(found, name)
        if value is not None:
            yield metric, value


def _cost(found: ServerLoad, tokens: float, seconds: float, plan: ServingPlan) -> Iterator[tuple[str, float]]:
    """Yield output tokens per joule of the GPUs and per dollar, at the hardware's price."""
    price = plan.config.hardware.price_per_device_hour_usd
    if found.gpu_power_w and found.gpu_power_w.mean > 0:
        yield "output_tokens_per_joule", tokens / (found.gpu_power_w.mean * seconds)
    if price and tokens:
        usd = price * plan.devices * seconds / 3600
        yield "output_tokens_per_usd", tokens / usd
        yield "usd_per_million_output_tokens", usd / tokens * 1e6
