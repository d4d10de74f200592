"""Transformers' own server, `transformers serve`, with continuous batching; the engine that runs without a GPU.

What stands here was tried with transformers 5.23: docs/results/serving.md has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import ClassVar

from llmexp.dtypes import bytes_of, format_of
from llmexp.record.installed import installs
from llmexp.record.plan import Command
from llmexp.schema import DenseModel, MixtralModel
from llmexp.serving.engine import HOST, Knob, ServingEngine, ServingSpec, switch, value
from llmexp.serving.plan.quantized import quantized_weights
from llmexp.serving.plan.reported_memory import ComputedBytes, ReportedMemory
from llmexp.serving.plan.server_plan import ProfilerRoutes, RequestForm, ServerPlan

PAGE_TOKENS = 32
# The scheduler lets no request in where fewer blocks are free than its margin.
ROOM = 1.25
# The same program, which asks for a key; and with routes that start and end a profiler in its process.
GUARDED_SERVER = "llmexp.launchers.profiled_server.guarded_cli"
PROFILED_SERVER = "llmexp.launchers.profiled_server.transformers_cli"
KEY = "LLMEXP_SERVER_KEY"


class TransformersEngine(ServingEngine):
    """It takes text only, always sends usage, and ends an output at its length as the folder names no end token."""

    name = "transformers"
    sampling_keys = ()
    has_profiler = True
    modules = ("torch", "transformers", "fastapi", "uvicorn", "openai")
    installed_by = installs("train,serve")
    distributions = ("torch", "transformers", "tokenizers", "uvicorn")
    knobs: ClassVar[Mapping[str, Knob]] = {
        "block_size": value("--cb-block-size"),
        "kv_blocks": value("--cb-num-blocks"),
        "max_batch_tokens": value("--cb-max-batch-tokens"),
        "memory_fraction": value("--cb-max-memory-percent"),
        "cuda_graphs": switch("--cb-use-cuda-graph", "--no-cb-use-cuda-graph"),
        "compile": switch("--compile"),
        "attention": value("--attn-implementation"),
        "quantization": value("--quantization"),
        "continuous_batching": switch("--continuous-batching"),
    }

    def cannot(self, served: ServingSpec) -> str | None:
        """It serves a model from one device."""
        if served.devices > 1:
            return "engine=transformers serves a model from one device: set parallelism.tp=1"
        return None

    def reported_memory(self, served: ServingSpec) -> ReportedMemory:
        """Its cache has the blocks that it was told, and no others; what bitsandbytes quantizes is counted."""
        found, knobs = super().reported_memory(served), _with_defaults(served, _defaults(served)).knobs
        if served.is_running:
            return found
        if knobs.get("kv_blocks") and knobs["continuous_batching"]:
            tokens = int(knobs["kv_blocks"]) * int(knobs.get("block_size", PAGE_TOKENS))
            found = found.model_copy(
                update={"kv_tokens": ComputedBytes(number=tokens, words="blocks as they were set")}
            )
        if not isinstance(served.model, DenseModel | MixtralModel):
            return found
        quantized = quantized_weights(served.model, str(knobs.get("quantization")), bytes_of(served.dtype))
        return found.model_copy(update={"weights": quantized}) if quantized else found

    def server(self, served: ServingSpec) -> ServerPlan:
        """Return `transformers serve` for the folder alone; without a bound, its KV cache would take most memory."""
        served = _with_defaults(served, _defaults(served))
        # What profiles or guards is llmexp's own program; a profile asks for it wherever the interpreter is.
        is_ours = served.profile or not served.elsewhere
        ours = [PROFILED_SERVER, "{trace}"] if served.profile else [GUARDED_SERVER]
        program = ours if is_ours else ["transformers.cli.transformers"]
        argv = ["{python}", "-m", *program, "serve", "{folder}", "--host", HOST]
        argv += ["--port", "{port}", "--device", served.device, "--dtype", format_of(served.dtype).torch]
        argv += ["--default-seed", str(served.seed), *self.flags(served)]
        form = RequestForm.completions(token_ids=False)
        return ServerPlan(
            command=Command(argv=argv),
            form=form,
            profiler=ProfilerRoutes() if served.profile else None,
            key_variable=KEY if is_ours else None,
        )


def _defaults(served: ServingSpec) -> dict[str, int]:
    return {"continuous_batching": True} | (_cache(served) if served.device == "cpu" else {})


def _cache(served: ServingSpec) -> dict[str, int]:
    page = int(served.knobs.get("block_size", PAGE_TOKENS))
    blocks = served.requests * ceil((served.positions + 1) / page)
    return {"block_size": page, "kv_blocks": ceil(blocks * ROOM) + 1, "max_batch_tokens": max(512, served.requests)}


def _with_defaults(served: ServingSpec, defaults: dict[str, int]) -> ServingSpec:
    return replace(served, knobs={**defaults, **served.knobs})


ENGINE = TransformersEngine()
