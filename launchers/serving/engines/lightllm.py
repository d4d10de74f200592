"""LightLLM's server, which reads the folder's weights.

Its routes, flags and events are those of the sources of LightLLM 1.0.1 (July 2025); it was started without a GPU, and
so as far as CUDA. It has OpenAI's completions too, whose stream names neither token ids nor counts: its own route names
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llmexp.dtypes import format_of
from llmexp.record.plan import Command
from llmexp.serving.engine import HOST, SERVED_NAME, Knob, ServingEngine, ServingSpec, value
from llmexp.serving.plan.reported_memory import ComputedBytes, ReportedMemory, ReportedNumber
from llmexp.serving.plan.server_plan import MetricNames, RequestForm, ServerPlan

KV_DTYPES = ("int8",)
# By lightllm/server/api_start.py, which ends where a batch holds less than a chunk.
CHUNK_TOKENS = 4096
# As lightllm/server/metrics/metrics.py names them.
METRIC_NAMES: MetricNames = {
    "running": ("lightllm_batch_current_size",),
    "waiting": ("lightllm_queue_size",),
    "prefix_queried_tokens": ("lightllm_request_input_length_sum",),
    "prefix_hit_tokens": ("lightllm_cache_length_sum",),
    "generated_tokens": ("lightllm_request_generated_tokens_sum",),
    "prompt_tokens": ("lightllm_request_input_length_sum",),
}
# By lightllm/common/mem_manager.py, where kv_tokens does not say how many.
KV_TOKENS = (
    ReportedNumber(where="log", pattern=r"(\d+) is the profiled max_total_token_num", words="its log, as profiled"),
)


class LightllmEngine(ServingEngine):
    """It takes token ids and ignore_eos, and has a metrics page; it tells the id of every token."""

    name = "lightllm"
    sampling_keys = ("temperature", "top_p")
    kv_tokens_told = KV_TOKENS
    modules = ("lightllm",)
    installed_by = "`make serve-venv SERVER=lightllm` installs it; or set engine.python to an interpreter that has it"
    distributions = ("lightllm", "torch", "triton", "transformers")
    knobs: ClassVar[Mapping[str, Knob]] = {
        "max_sequences": value("--running_max_req_size"),
        "max_batch_tokens": value("--batch_max_tokens"),
        "kv_tokens": value("--max_total_token_num"),
        "memory_fraction": value("--mem_fraction"),
        "chunked_prefill": lambda on: [] if on else ["--disable_chunked_prefill"],
        "chunked_prefill_tokens": value("--chunked_prefill_size"),
        "prefix_caching": lambda on: [] if on else ["--disable_dynamic_prompt_cache"],
        "cuda_graphs": lambda on: [] if on else ["--disable_cudagraph"],
        "kv_dtype": lambda dtype: ["--mode", f"triton_{dtype}kv"],
        "quantization": value("--quant_type"),
    }

    def cannot(self, served: ServingSpec) -> str | None:
        """Its kernels are Triton's, and its prefill in chunks needs the cache of prefixes."""
        if served.device == "cpu":
            return "engine=lightllm needs a GPU: its kernels are written in Triton and CUDA"
        knobs = served.knobs
        if not knobs.get("prefix_caching", True) and knobs.get("chunked_prefill", True):
            return "engine=lightllm: prefix_caching=false needs chunked_prefill=false too"
        if int(knobs.get("chunked_prefill_tokens") or 0) > _batch_tokens(served):
            return (
                f"engine=lightllm: chunked_prefill_tokens={knobs['chunked_prefill_tokens']} is more than a batch "
                f"holds, {_batch_tokens(served)}: set fewer, or more max_batch_tokens"
            )
        holds = _batch_tokens(served)
        if not knobs.get("chunked_prefill", True) and holds < served.positions:
            return (
                f"engine=lightllm: chunked_prefill=false reads prompts whole, and a batch holds {holds} of "
                f"{served.positions} positions: set max_batch_tokens to as many"
            )
        return _unknown_kv_dtype(knobs)

    def reported_memory(self, served: ServingSpec) -> ReportedMemory:
        """The tokens of the cache are those that it was told, else each device's log tells them for all."""
        found, given = super().reported_memory(served), served.knobs.get("kv_tokens")
        if given:
            own = ComputedBytes(number=int(given), words="engine.options.kv_tokens")
            return found.model_copy(update={"kv_tokens_told": [], "kv_tokens": own})
        return found if served.devices == 1 else found.model_copy(update={"kv_tokens_told": []})

    def server(self, served: ServingSpec) -> ServerPlan:
        """Return the command of LightLLM's server; it asks for an end token, which every request then ignores."""
        argv = ["{python}", "-m", "lightllm.server.api_server", "--model_dir", "{folder}", "--model_name", SERVED_NAME]
        argv += ["--host", HOST, "--port", "{port}", "--nccl_port", "{inner_port}", "--eos_id", "0"]
        argv += ["--data_type", format_of(served.dtype).torch, "--max_req_total_len", str(served.positions)]
        argv += ["--tp", str(served.devices), *_chunk(served), *self.flags(served)]
        form = RequestForm.generate_stream(token_ids=True, ignore_eos=True)
        return ServerPlan(command=Command(argv=argv), metrics="/metrics", metric_names=METRIC_NAMES, form=form)


def _batch_tokens(served: ServingSpec) -> int:
    return int(served.knobs.get("max_batch_tokens") or served.positions)


def _chunk(served: ServingSpec) -> list[str]:
    """Return a smaller chunk than the server's own where a batch does not hold that."""
    given, room = served.knobs, _batch_tokens(served)
    is_said = "chunked_prefill_tokens" in given or not given.get("chunked_prefill", True)
    return [] if is_said or room >= CHUNK_TOKENS else ["--chunked_prefill_size", str(room)]


def _unknown_kv_dtype(knobs: Mapping[str, Any]) -> str | None:
    given = knobs.get("kv_dtype", KV_DTYPES[0])
    if given in KV_DTYPES:
        return None
    return f"engine=lightllm does not support kv_dtype={given} for these models: choices are {', '.join(KV_DTYPES)}"


ENGINE = LightllmEngine()
