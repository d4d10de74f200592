"""How a server is started and spoken to: an engine of task=serve decides it before the run, and the rank follows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field

from llmexp.record.plan import Command
from llmexp.record.samples import Record
from llmexp.serving.plan.reported_memory import ReportedMemory
from llmexp.serving.record.server_samples import ServerMetric

Weights = Literal["safetensors", "gguf", "gptq", "awq", "none"]
ContainerProgram = Literal["docker", "podman"]
MetricNames = dict[ServerMetric, tuple[str, ...]]
"""The names of a server's page for what llmexp records; of several names the first that stands on the page counts."""
# What stands in a form's body for a request's own values.
PROMPT, OUTPUT_TOKENS = "{prompt}", "{output_tokens}"
# The tokens of prompt and output together, as a number; and the adapter that the request asks for.
TOKENS, ADAPTER = "{tokens}", "{adapter}"
# The seed of what is drawn, which is the request's number.
SEED = "{seed}"
ADAPTERS = "{adapters}"
_OF_DRAWING = ("temperature", "top_p", "n", "seed", "use_beam_search")


def adapter_name(number: int) -> str:
    """Return the name by which requests ask for an adapter."""
    return f"adapter-{number}"


class RequestForm(Record):
    """What a server takes in a request for a completion, and how its answer is read."""

    body: dict[str, Any] = Field(
        description="of a request in JSON; '{prompt}', '{output_tokens}', '{tokens}', '{adapter}' and "
        "'{seed}' stand for its own"
    )
    token_ids: bool = Field(description="the prompt is a list of token ids; else it is text")
    words: bool = Field(True, description="a text is of llmexp's words, which tell token ids; false: of any tokenizer")
    adapters: int = Field(0, description="so many adapters are asked for in turn")
    path: str = "/v1/completions"
    events: Literal["completions", "generate_stream"] = Field(
        "completions", description="the words of the stream's events: OpenAI's, or text-generation-inference's"
    )
    logprobs: dict[str, Any] = Field(
        default_factory=dict, description="further keys of a request that asks for the logprobs of its tokens"
    )

    @classmethod
    def completions(cls, token_ids: bool, **more: Any) -> RequestForm:
        """Return the form of OpenAI's completions, with further keys of the server's."""
        asked = {"prompt": PROMPT, "max_tokens": OUTPUT_TOKENS, "stream": True, "temperature": 0}
        return cls(body=asked | more, token_ids=token_ids)

    @classmethod
    def generate_stream(cls, token_ids: bool, **more: Any) -> RequestForm:
        """Return the form of text-generation-inference and LightLLM, with further parameters of the server's."""
        parameters = {"max_new_tokens": OUTPUT_TOKENS, "do_sample": False} | more
        body = {"inputs": PROMPT, "parameters": parameters}
        return cls(body=body, token_ids=token_ids, path="/generate_stream", events="generate_stream")

    @property
    def answers(self) -> int:
        """How many answers to its prompt a request asks for."""
        return int(self.body.get("n", 1))

    @property
    def streams(self) -> bool:
        """Tell whether the answer comes as a stream of events, and not whole."""
        return bool(self.body.get("stream", True))

    def drawing(self, drawn: Mapping[str, Any]) -> RequestForm:
        """Return the form of requests whose tokens are drawn, by these further keys."""
        if self.events == "completions":
            return self.model_copy(update={"body": {**self.body, **drawn}})
        parameters = {**self.body["parameters"], **drawn, "do_sample": True}
        return self.model_copy(update={"body": self.body | {"parameters": parameters}})

    def telling(self) -> RequestForm:
        """Return the form of requests for the likeliest tokens, with their logprobs where the server tells them."""
        if self.events != "completions":
            kept = {key: given for key, given in self.body["parameters"].items() if key not in _OF_DRAWING}
            return self.model_copy(update={"body": self.body | {"parameters": kept | {"do_sample": False}}})
        kept = {key: given for key, given in self.body.items() if key not in _OF_DRAWING and given is not None}
        return self.model_copy(update={"body": kept | {"stream": True, "temperature": 0} | self.logprobs})

    def of_model(self, name: str) -> RequestForm:
        """Return the form with another name of the model, where its requests name one."""
        return self.model_copy(update={"body": self.body | {"model": name}}) if "model" in self.body else self


class ProfilerRoutes(Record):
    """The routes by POST that start and end a server's profiler, which writes traces into a run's trace folder."""

    start: str = "/start_profile"
    stop: str = "/stop_profile"
    start_body: dict[str, Any] = Field(default_factory=dict, description="'{trace}' stands for the folder of traces")


class ServerPlan(Record):
    """The command of a server, and the routes at which it answers.

    The command's arguments may have '{folder}', the model's folder, '{port}', '{python}', '{own_python}', that of the
    load client, '{threads}', how many the server may take on a CPU, '{adapters}', the folder of the adapters' folders,
    '{inner_port}', a further port for the server's own processes, '{name}', a container's name, '{trace}', the folder
    of its profiler's traces, and '{scratch}', a folder that it makes, which is removed however its processes end.
    """

    command: Command = Field(description="empty for a server that runs already")
    address: str | None = Field(None, description="of a server that runs already: nothing is started")
    container: ContainerProgram | None = Field(
        None, description="the program by which the command starts a container, whose processes are not the command's"
    )
    python: str | None = Field(None, description="the interpreter of the server's own environment; None: the rank's")
    ready: str = Field("/health", description="answers 200 to GET as soon as requests are served, and while they are")
    metrics: str | None = Field(None, description="gives Prometheus's text; None where there is none")
    metric_names: MetricNames = Field(default_factory=dict, description="what is read of that page, by whose names")
    profiler: ProfilerRoutes | None = Field(None, description="of a server that is started to be profiled")
    key_variable: str | None = Field(
        None, description="by which the server is told a key that requests have to carry; None: it cannot be told one"
    )
    form: RequestForm
    reported_memory: ReportedMemory = Field(
        default_factory=ReportedMemory,
        validation_alias=AliasChoices("reported_memory", "holdings"),  # plans of before 0.1.0 have the second
        description="how it is known what the server holds",
    )
    weights: Weights = Field("safetensors", description="of the model's folder; none: the server makes its own")

    def with_adapters(self, folder: Path) -> ServerPlan:
        """Return the plan whose command names the folder of the adapters."""
        command = self.command.model_copy(update={"argv": self.command.words(**{ADAPTERS[1:-1]: folder})})
        return self.model_copy(update={"command": command})
