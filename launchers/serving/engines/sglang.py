"""SGLang's server; it reads the folder's weights, or draws random ones from its configuration alone.

Its flags are those that SGLang 0.5.23 has; without a GPU it was not started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from llmexp.dtypes import format_of
from llmexp.record.digits import GIB
from llmexp.record.plan import Command
from llmexp.serving.engine import (
    HOST,
    IGNORE_END,
    LOGPROBS,
    SERVED_NAME,
    Knob,
    ServingEngine,
    ServingSpec,
    value,
)
from llmexp.serving.plan.reported_memory import ReportedMemory, ReportedNumber
from llmexp.serving.plan.server_plan import MetricNames, ProfilerRoutes, RequestForm, ServerPlan

_NO_GRAPHS = ["--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"]
# As sglang/srt/observability/metrics_collector.py names them. It looks every prompt up in its cache; it counts tokens
# when a request ends, and of speculation it tells means of the last batches only. Before it told its
# spec_num_draft_tokens, its share had among the accepted tokens those that were not drafted.
METRIC_NAMES: MetricNames = {
    "running": ("sglang:num_running_reqs",),
    "waiting": ("sglang:num_queue_reqs",),
    "kv_used_share": ("sglang:token_usage",),
    "preemptions": ("sglang:num_retracted_requests_total",),
    "prefix_queried_tokens": ("sglang:prompt_tokens_total",),
    "prefix_hit_tokens": ("sglang:cached_tokens_total",),
    "accepted_share": ("sglang:spec_accept_rate",),
    "draft_width": ("sglang:spec_num_draft_tokens",),
    "tokens_per_draft_step": ("sglang:spec_accept_length",),
    "generated_tokens": ("sglang:generation_tokens_total",),
    "prompt_tokens": ("sglang:prompt_tokens_total",),
}


KV_TOKENS = (
    ReportedNumber(
        where="page",
        pattern=r"^sglang:max_total_num_tokens(?:\{.*\})? (\S+)",
        words="sglang:max_total_num_tokens on its page",
    ),
)
# By sglang/srt/model_executor/model_runner.py, whose GB are GiB; each device tells its own.
_LOADED = r"Load weight end\..*mem usage=([\d.]+) GB"

# Only with Python's calls does its trace tell which steps are prefill, and where a module runs.
_PROFILER = ProfilerRoutes(
    start_body={"output_dir": "{trace}", "activities": ["CPU", "GPU"], "with_stack": True, "record_shapes": True}
)


class SglangEngine(ServingEngine):
    """It takes token ids and ignore_eos, and has a metrics page where it is told to."""

    name = "sglang"
    has_profiler = draws_own = reads_int4 = True
    kv_tokens_told = KV_TOKENS
    modules = ("sglang",)
    installed_by = "install sglang into its own environment, and set engine.python to its interpreter"
    distributions = ("sglang", "torch", "triton", "flashinfer-python")
    knobs: ClassVar[Mapping[str, Knob]] = {
        "block_size": value("--page-size"),
        "max_sequences": value("--max-running-requests"),
        "chunked_prefill_tokens": value("--chunked-prefill-size"),
        "memory_fraction": value("--mem-fraction-static"),
        "prefix_caching": lambda on: [] if on else ["--disable-radix-cache"],
        "cuda_graphs": lambda on: [] if on else _NO_GRAPHS,
        "kv_dtype": value("--kv-cache-dtype"),
        "quantization": value("--quantization"),
        "scheduling": value("--schedule-policy"),
        "attention": value("--attention-backend"),
        "speculative": lambda given: _speculative(given),
    }

    def cannot(self, served: ServingSpec) -> str | None:
        """On a CPU it needs AMX and a build of its own."""
        if served.device == "cpu":
            return "engine=sglang needs a GPU here: on a CPU it needs a separate build and AMX instructions"
        return None

    def reported_memory(self, served: ServingSpec) -> ReportedMemory:
        """Its log tells what each device's memory gained by the weights."""
        found, draft = super().reported_memory(served), served.knobs.get("speculative")
        if served.is_running:
            return found
        if isinstance(draft, Mapping) and draft.get("draft_model_path"):
            return ReportedMemory(kv_tokens_told=found.kv_tokens_told)
        told = ReportedNumber(
            where="log", pattern=_LOADED, words="its log, as loaded", unit_bytes=GIB, lines=served.every_device
        )
        return found.model_copy(update={"weights_told": [told]})

    def server(self, served: ServingSpec) -> ServerPlan:
        """Return the command of SGLang's server."""
        argv = ["{python}", "-m", "sglang.launch_server", "--model-path", "{folder}", "--host", HOST]
        argv += [
            "--port",
            "{port}",
            "--served-model-name",
            SERVED_NAME,
            "--load-format",
            served.load_format,
            "--enable-metrics",
        ]
        argv += ["--dtype", format_of(served.dtype).torch, "--context-length", str(served.positions)]
        argv += ["--tp-size", str(served.devices), "--random-seed", str(served.seed), *self.flags(served)]
        form = RequestForm.completions(token_ids=True, **IGNORE_END)
        form = form.model_copy(update={"logprobs": LOGPROBS | {"return_token_ids": True}})
        return ServerPlan(
            command=Command(argv=argv),
            metrics="/metrics",
            metric_names=METRIC_NAMES,
            profiler=_PROFILER if served.profile else None,
            form=form,
            weights=served.folder_weights,
        )


def _speculative(given: Mapping[str, object] | str) -> list[str]:
    """Return the flags that begin with --speculative-, by what follows; a text alone is the algorithm."""
    named = given if isinstance(given, Mapping) else {"algorithm": given}
    return [word for name, each in named.items() for word in (f"--speculative-{name.replace('_', '-')}", str(each))]


ENGINE = SglangEngine()
