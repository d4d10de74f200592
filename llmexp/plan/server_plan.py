"""How a server is started and spoken to: an engine of task=serve decides it before the run, and the rank follows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llmexp.record.plan import Command
from llmexp.record.samples import Record

Weights = Literal["safetensors", "gguf", "none"]


class RequestForm(Record):
    """What a server takes in a request for a completion, and what its stream holds."""

    token_ids: bool = Field(description="a prompt may be a list of token ids; else it is text")
    always: dict[str, Any] = Field(default_factory=dict, description="keys that every request has, such as ignore_eos")
    length_keys: tuple[str, ...] = Field(
        ("max_tokens",), description="keys that get the number of output tokens, so that exactly as many come"
    )
    usage: Literal["always", "asked", "never"] = Field(
        description="the stream gives its usage always, where stream_options asks for it, or never"
    )
    done_mark: bool = Field(True, description="the stream ends with the event [DONE]")


class ServerPlan(Record):
    """The command of a server, and the routes at which it answers.

    The command's arguments may have '{folder}', the model's folder, '{port}', and '{python}', this interpreter.
    """

    command: Command
    ready: str = Field("/health", description="answers 200 to GET as soon as requests are served, and while they are")
    completions: str = Field("/v1/completions", description="takes POST of OpenAI's completions")
    metrics: str | None = Field(None, description="gives Prometheus's text; None where there is none")
    form: RequestForm
    weights: Weights = Field("safetensors", description="of the model's folder; none: the server makes its own")
