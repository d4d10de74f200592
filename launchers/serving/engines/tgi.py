"""Hugging Face's text-generation-inference, in the container of its last version.

Its routes, flags and events are those of the sources of 3.3.7 (December 2025), after which only repairs are taken in;
it was not started, for want of a GPU. It has OpenAI's completions too, whose stream names no token ids: its own route
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from llmexp.dtypes import SINGLE, format_of
from llmexp.errors import ConfigError
from llmexp.record.plan import Command
from llmexp.serving.config import ServingRunConfig
from llmexp.serving.engine import HOST, Knob, ServingEngine, ServingSpec, value
from llmexp.serving.plan.reported_memory import ReportedNumber
from llmexp.serving.plan.server_plan import ContainerProgram, MetricNames, RequestForm, ServerPlan
from llmexp.tasks.engine import ServerSoftware

IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.7"
PROGRAMS: Mapping[ContainerProgram, list[str]] = {
    "docker": ["--gpus", "all"],
    "podman": ["--device", "nvidia.com/gpu=all"],
}
"""The programs that start containers, and how each passes the GPUs on."""
INSIDE = "/model"
# It refuses what is beyond with 429, where the requests of a load shall wait.
MOST_WAITING = 65536
# What its shards exchange: docker's own 64 MB do not suffice for NCCL.
SHARED_MEMORY = "1g"
# As its router and backends/v3 name them; it counts a request's tokens at its end. Of speculation it notes at each step
# of a request the tokens beyond the first, at the step that reads the prompt too; it never says how many it proposed.
METRIC_NAMES: MetricNames = {
    "running": ("tgi_batch_current_size",),
    "waiting": ("tgi_queue_size",),
    "accepted_tokens": ("tgi_request_skipped_tokens_sum",),
    "draft_steps": ("tgi_request_skipped_tokens_count",),
    "prompt_steps": ("tgi_request_generated_tokens_count",),
    "generated_tokens": ("tgi_request_generated_tokens_sum",),
    "prompt_tokens": ("tgi_request_input_length_sum",),
}
# By router/src/server.rs.
KV_TOKENS = (
    ReportedNumber(
        where="log", pattern=r"Setting max batch total tokens to (\d+)", words="its log, as the tokens of a batch"
    ),
)
# Without a value docker and podman take it from their own environment, so that no key stands on a command line.
KEY = "API_KEY"
_OF_CONTAINER = ("image", "program")


def variable(name: str) -> Knob:
    """Return a knob that is a variable inside the container."""
    return lambda given: ["--env", f"{name}={str(given).lower()}"]


VARIABLES: Mapping[str, Knob] = {
    "attention": variable("ATTENTION"),
    "chunked_prefill": variable("PREFILL_CHUNKING"),
    "prefix_caching": variable("PREFIX_CACHING"),
}


class TgiEngine(ServingEngine):
    """It takes text, has no ignore_eos and a folder without an end token, and tells the id of every token."""

    name = "tgi"
    reads_int4 = True
    kv_tokens_told = KV_TOKENS
    takes_checkpoints = False
    modules = ()
    installed_by = f"`docker pull {IMAGE}` fetches its image"
    distributions = ()
    knobs: ClassVar[Mapping[str, Knob]] = {
        **VARIABLES,
        "max_sequences": value("--max-batch-size"),
        "max_batch_tokens": value("--max-batch-prefill-tokens"),
        "kv_tokens": value("--max-batch-total-tokens"),
        "memory_fraction": value("--cuda-memory-fraction"),
        "cuda_graphs": lambda on: [] if on else ["--cuda-graphs", "0"],
        "kv_dtype": value("--kv-cache-dtype"),
        "quantization": value("--quantize"),
        "speculative": value("--speculate"),
        "image": value("--image"),
        "program": value("--program"),
    }

    def cannot(self, served: ServingSpec) -> str | None:
        """The image is one for GPUs, and its models are of 16 bits."""
        if served.device == "cpu":
            return "engine=tgi needs a GPU: its image is built for CUDA"
        if served.dtype == SINGLE:
            return "engine=tgi computes in bf16, not in fp32: set serve.dtype=bf16"
        if served.model.architecture == "qwen3":
            return f"engine=tgi does not support Qwen3, and model={served.model.name} is one"
        return None

    def server(self, served: ServingSpec) -> ServerPlan:
        """Return the command of the container: its port is published here only, and the model's folder not written."""
        program = program_of(served.knobs)
        own = {name: given for name, given in served.knobs.items() if name in VARIABLES}
        inside = {name: given for name, given in served.knobs.items() if name not in (*VARIABLES, *_OF_CONTAINER)}
        argv = [program, "run", "--rm", "--init", "--pull", "never", "--name", "{name}"]
        argv += ["--publish", f"{HOST}:{{port}}:80", "--volume", f"{{folder}}:{INSIDE}:ro"]
        argv += ["--shm-size", SHARED_MEMORY, *PROGRAMS[program], "--env", "CUDA_VISIBLE_DEVICES"]
        argv += ["--env", KEY, "--env", "HF_HUB_OFFLINE=1", *self.flags(replace(served, knobs=own))]
        argv += [str(served.knobs.get("image") or IMAGE), "--model-id", INSIDE, "--port", "80", "--usage-stats", "off"]
        argv += ["--dtype", format_of(served.dtype).torch, "--num-shard", str(served.devices), *_lengths(served)]
        argv += self.flags(replace(served, knobs=inside))
        form = RequestForm.generate_stream(token_ids=False, details=True)
        return ServerPlan(
            command=Command(argv=argv),
            container=program,
            metrics="/metrics",
            metric_names=METRIC_NAMES,
            key_variable=KEY,
            form=form,
            weights=served.int4 or "safetensors",
        )

    def server_software(self, config: ServingRunConfig) -> ServerSoftware | None:
        """Return the image, which is never fetched while a server is timed."""
        software, knobs = super().server_software(config), config.engine.options
        if software is None:
            return None
        program, image = program_of(knobs), str(knobs.get("image") or IMAGE)
        fetched = f"`{program} pull {image}` fetches its image"
        return replace(software, installed_by=fetched, check=(program, "image", "inspect", image))


def program_of(knobs: Mapping[str, Any]) -> ContainerProgram:
    """Return the program that starts the container; raises ConfigError for another than docker and podman."""
    given = knobs.get("program") or "docker"
    for program in PROGRAMS:
        if program == given:
            return program
    raise ConfigError(f"engine.options.program={given} cannot start a container: choices are {', '.join(PROGRAMS)}")


def _lengths(served: ServingSpec) -> list[str]:
    """Return the flags that bound requests: at least one token of the longest is output."""
    longest = ["--max-input-tokens", str(served.positions - 1), "--max-total-tokens", str(served.positions)]
    return [*longest, "--max-concurrent-requests", str(MOST_WAITING)]


ENGINE = TgiEngine()
