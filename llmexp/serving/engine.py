"""The interface of the engines that start a server."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, ClassVar, Literal

from llmexp.dtypes import HALF, SINGLE, bytes_of
from llmexp.inputs.architecture.model import Architecture
from llmexp.launch.commands import ranks_of
from llmexp.record.plan import Command
from llmexp.schema import DenseModel, Dtype, HfModel
from llmexp.serving.config import ServingRunConfig
from llmexp.serving.config.load import Sampling, ServedAdapters
from llmexp.serving.plan.quantized import INT4, LEAST_GROUP, Int4, group_size
from llmexp.serving.plan.reported_memory import ComputedBytes, ReportedMemory, ReportedNumber
from llmexp.serving.plan.served_model import CheckpointModel, ServedModel, weight_parameters
from llmexp.serving.plan.server_plan import SEED, ServerPlan, Weights
from llmexp.serving.predict.held import kept_per_token
from llmexp.tasks.engine import Engine, ServerSoftware

WORKER = "llmexp.launchers.serving.worker"
HOST = "127.0.0.1"
# On a CPU: the cores that the load client leaves to the server.
THREADS = "{threads}"
# The name by which requests ask for the model, where a server wants one.
SERVED_NAME = "llmexp"
# What vLLM's and SGLang's completions are asked besides: outputs of the full length, and the count of tokens.
IGNORE_END = {"model": SERVED_NAME, "ignore_eos": True, "stream_options": {"include_usage": True}}
# What a request of OpenAI's completions asks for besides where each token's logprob shall be told.
LOGPROBS = {"logprobs": 1}
# The knob that has prompts read and outputs generated on servers of their own.
APART = "prefill_apart"
# The KV cache's dtypes of one byte that have no scales for each token beside them.
_FP8 = ("fp8", "fp8_e4m3", "fp8_e4m3fn", "fp8_e5m2")

# What the load client imports, and what writes the model's folder.
CLIENT_MODULES = ("httptools", "uvloop", "msgspec")
FOLDER_MODULES = ("torch", "transformers")

# The engines whose servers can be profiled.
PROFILED = "transformers, vllm and sglang"
# Those that serve a folder of one's own: llama.cpp reads GGUF, and a container sees no links out of its folder.
OF_CHECKPOINTS = "transformers, vllm, sglang, lightllm and command"

Knob = Callable[[Any], list[str]]
"""Turns a knob's value into words of the server's command line."""


def value(flag: str) -> Knob:
    """Return a knob whose value stands after its flag."""
    return lambda given: [flag, str(given)]


def json_value(flag: str) -> Knob:
    """Return a knob whose value is a mapping, which stands after its flag as JSON; text is taken as it is."""
    return lambda given: [flag, given if isinstance(given, str) else json.dumps(given)]


def switch(on: str, off: str | None = None) -> Knob:
    """Return a knob that is on or off; without a flag for off, off is what the server does by itself."""
    return lambda given: [on] if given else [off] if off else []


@dataclass(frozen=True)
class ServingSpec:
    """What a server has to hold."""

    model: ServedModel
    dtype: Dtype
    device: Literal["cpu", "cuda"]
    positions: int
    """The most tokens of one request, prompt and output together."""
    requests: int
    """The most requests at a time that need not wait for room in the KV cache."""
    devices: int = 1
    """Over which the model is cut by tensor parallelism."""
    stages: int = 1
    """Into which its layers are cut by pipeline parallelism."""
    replicas: int = 1
    """Whole copies of the model behind one address."""
    adapters: ServedAdapters | None = None
    samples: bool = False
    """Requests ask for tokens that are drawn."""
    seed: int = 0
    is_checkpoint: bool = False
    """It is a folder with weights and a tokenizer of its own."""
    own_weights: bool = False
    """A server that can may draw random weights itself: it starts sooner, and its outputs are its own."""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    profile: bool = False
    """The server is started so that its profiler can be used."""
    answers: int = 1
    """How many answers a request asks for."""
    beams: int = 1
    """How many beams a request has searched."""
    elsewhere: bool = False
    """Its interpreter is that of another environment, in which llmexp need not be."""
    is_running: bool = False
    """The server runs already, so that only its form of requests and its routes are asked for."""

    @property
    def copies(self) -> int:
        """Whole copies of the model: those behind one address, or one for prefill and one for decode."""
        return 2 * self.replicas if self.knobs.get(APART) else self.replicas

    @property
    def every_device(self) -> int:
        """The devices of all copies together."""
        return self.devices * self.stages * self.copies

    @property
    def kv_bytes_per_token(self) -> int:
        """What the cache keeps of one token in all layers, as a mean over a request of the greatest length."""
        if self._layers:
            return ceil(self._layers.cache_elements(self.positions) / self.positions) * bytes_of(self.dtype)
        return 2 * self.model.num_layers * self.model.num_kv_heads * self.model.head_dim * bytes_of(self.dtype)

    @property
    def kv_bytes_over_devices(self) -> int | None:
        """The bytes of one token on all devices; None where the cache's dtype has scales beside it, or is not known.

        None too where windows or states keep less of a longer request. Where there are more devices than heads, tensor
        parallelism gives each of them a copy of one, and of latents it gives all of them a copy.
        """
        given = self.knobs.get("kv_dtype") or "auto"
        size = bytes_of(self.dtype) if given == "auto" else 1 if given in _FP8 else None
        if size and self._layers:
            return kept_per_token(self._layers, self.positions, self.devices, size)
        heads = max(self.model.num_kv_heads, self.devices)
        return None if size is None else 2 * self.model.num_layers * heads * self.model.head_dim * size

    @property
    def _layers(self) -> Architecture | None:
        """The layers of a checkpoint that llmexp knows; models that are given by their sizes have grouped heads."""
        return self.model.architecture_read if isinstance(self.model, CheckpointModel) else None

    @property
    def drawn_weights(self) -> ComputedBytes:
        """The bytes of weights that a server draws itself."""
        number = weight_parameters(self.model) * bytes_of(self.dtype) * self.copies
        return ComputedBytes(number=number, words="the model's shape")

    @property
    def int4(self) -> Int4 | None:
        """The 4-bit format in which the folder's weights are asked for."""
        return next((kind for kind in INT4 if kind == self.knobs.get("quantization")), None)

    @property
    def folder_weights(self) -> Weights:
        """The weights in the folder of a server that can draw its own."""
        return "none" if self.own_weights else self.int4 or "safetensors"

    @property
    def load_format(self) -> str:
        """The name that vLLM and SGLang have for the weights that such a server loads."""
        return "dummy" if self.own_weights else "safetensors"

    @property
    def kv_tokens(self) -> int:
        """The tokens of all requests at a time."""
        return self.requests * self.positions


class ServingEngine(Engine[ServingRunConfig]):
    """An engine that starts a server for random weights of a shape, or for a folder of weights."""

    tasks = ("serve",)
    launchers = ("spawn",)
    extras = "serve"

    knobs: ClassVar[Mapping[str, Knob]] = {}
    """What can be set, by names that engines share where they mean the same."""

    form_knobs: ClassVar[tuple[str, ...]] = ()
    """Of the knobs, those that say how a server is asked, and so count for one that runs already too."""

    dtypes: ClassVar[tuple[str, ...]] = (SINGLE, HALF)
    """The formats of weights and computation that it is known to take."""
    has_stages: ClassVar[bool] = False
    """It can cut a model into pipeline stages."""
    has_replicas: ClassVar[bool] = False
    """It can keep several copies of a model behind one address."""
    has_adapters: ClassVar[bool] = False
    """Requests can ask for one of several LoRA adapters."""
    takes_checkpoints: ClassVar[bool] = True
    """It can serve a folder with a checkpoint of one's own."""
    has_profiler: ClassVar[bool] = False
    """Its server can be profiled while it serves."""

    sampling_keys: ClassVar[tuple[str, ...]] = ("temperature", "top_p", "seed")
    """What requests may say of how tokens are drawn; empty for a server that takes the likeliest whatever they say."""

    searches_beams: ClassVar[bool] = False
    """Requests may have beams searched, as vLLM's server takes them."""

    reads_int4: ClassVar[bool] = False
    """It reads weights in the formats of GPTQ and AWQ."""
    draws_own: ClassVar[bool] = False
    """It can draw random weights itself."""
    kv_tokens_told: ClassVar[tuple[ReportedNumber, ...]] = ()
    """Where its server says for how many tokens its KV cache has room."""

    installed_by: ClassVar[str]
    """How a person installs the server, in one line."""

    def unsupported(self, served: ServingSpec) -> str | None:
        """Say why this engine cannot serve this, as the reason of a skip; return None where it can."""
        unknown = [name for name in served.knobs if name not in self.knobs]
        if unknown:
            return f"engine={self.name} has no {unknown[0]}: it has {', '.join(sorted(self.knobs))}"
        if served.profile and (served.is_running or not self.has_profiler):
            whose = "a server that runs already" if served.is_running else f"engine={self.name}"
            return f"serve.profile=true: llmexp knows no profiler of {whose}; {PROFILED} have one"
        if served.samples and not self.sampling_keys:
            return f"engine={self.name} takes the likeliest token whatever is asked: leave serve.sampling out"
        if served.beams > 1 and not self.searches_beams:
            return f"engine={self.name} has no beam search here: leave serve.sampling.beams out"
        if served.answers > 1 and "n" not in self.sampling_keys:
            return f"engine={self.name} streams one answer to a prompt here: leave serve.sampling.n out"
        return None if served.is_running else self._lacks(served) or self.cannot(served)

    def _lacks(self, served: ServingSpec) -> str | None:
        if served.dtype not in self.dtypes:
            return f"engine={self.name} computes in {' and '.join(self.dtypes)} here: leave serve.dtype out"
        if served.stages > 1 and not self.has_stages:
            return f"engine={self.name} does not support pipeline parallelism here: set parallelism.pp=1"
        if served.replicas > 1 and not self.has_replicas:
            return f"engine={self.name} has no replicas behind one address here: set parallelism.dp=1"
        if served.adapters and not self.has_adapters:
            return f"engine={self.name} does not support adapters here: leave serve.adapters out"
        if served.is_checkpoint and not self.takes_checkpoints:
            return f"engine={self.name} cannot serve your own checkpoint here: {OF_CHECKPOINTS} can"
        return self._lacks_int4(served) if served.int4 else None

    def _lacks_int4(self, served: ServingSpec) -> str | None:
        asked, model = f"engine.options.quantization={served.int4}", served.model
        if not self.reads_int4:
            return f"engine={self.name} cannot read weights in that format: {asked} is for vllm, sglang and tgi"
        if served.own_weights:
            return f"{asked}: llmexp writes these weights into a folder: leave serve.weights=own out"
        if not isinstance(model, DenseModel):
            return f"{asked}: the folder's 4-bit weights are those of dense models, and model={model.name} has experts"
        if served.dtype == SINGLE:
            return f"{asked}: servers compute with 4-bit weights in 16 bits only: set serve.dtype=bf16"
        if (group := group_size(model)) < LEAST_GROUP:
            return (
                f"{asked}: {group} inputs would share a scale, and servers want {LEAST_GROUP} or more: give "
                f"model.hidden_size and model.intermediate_size={model.intermediate_size} multiples of {LEAST_GROUP}"
            )
        return None

    def cannot(self, served: ServingSpec) -> str | None:
        """Say what else the engine cannot do."""
        return None

    def reported_memory(self, served: ServingSpec) -> ReportedMemory:
        """Say how it is known what the server holds: by its words, else by what it was told to load."""
        told = list(self.kv_tokens_told)
        if served.is_running:
            return ReportedMemory(kv_tokens_told=told)
        found = ReportedMemory(kv_tokens_told=told, kv_bytes_per_token=served.kv_bytes_over_devices)
        if served.knobs.get("quantization") and not served.int4:
            return found
        if self.draws_own and served.own_weights:
            return found.model_copy(update={"weights": served.drawn_weights})
        return found.model_copy(update={"folder_copies": served.copies})

    def command(self, config: ServingRunConfig) -> Command:
        """Return the command that starts the load client, which starts the server."""
        return ranks_of(config, 1, WORKER)

    def needed_modules(self, config: ServingRunConfig) -> tuple[str, ...]:
        """Return the modules of the load client, and those that write the model's folder where a server is started."""
        if config.serve.address:
            return (*CLIENT_MODULES, *_of_prompts(config))
        return (*CLIENT_MODULES, *FOLDER_MODULES, *(["peft"] if config.serve.adapters else []))

    def server_software(self, config: ServingRunConfig) -> ServerSoftware | None:
        """Return the server's interpreter and modules; None where it runs already."""
        return None if config.serve.address else ServerSoftware(config.engine.python, self.modules, self.installed_by)

    def drawn_by(self, sampling: Sampling) -> dict[str, Any]:
        """Return the keys of a request whose tokens are drawn; a top_p or an n of 1 is left out, as TGI wants it.

        Beams are asked for as vLLM's server has them, which does not stream what it searches.
        """
        if sampling.beams > 1:
            return {"use_beam_search": True, "n": sampling.beams, "stream": False, "stream_options": None}
        asked = {"temperature": sampling.temperature, "top_p": sampling.top_p, "n": sampling.n, "seed": SEED}
        needless = {key for key in ("top_p", "n") if asked[key] == 1}
        return {key: asked[key] for key in self.sampling_keys if key not in needless}

    @abstractmethod
    def server(self, served: ServingSpec) -> ServerPlan:
        """Return the server's command, routes and form of requests."""

    def flags(self, served: ServingSpec) -> list[str]:
        """Return the words of the command line that the knobs stand for."""
        return [word for name, given in served.knobs.items() for word in self.knobs[name](given)]


def _of_prompts(config: ServingRunConfig) -> tuple[str, ...]:
    """Return the module that reads a tokenizer, where prompts need one."""
    return ("transformers",) if config.serve.texts or isinstance(config.model, HfModel) else ()
