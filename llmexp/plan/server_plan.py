"""How a server is started and spoken to: an engine of task=serve decides it before the run, and the rank follows it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from llmexp.record.plan import Command
from llmexp.record.samples import Record


class RequestForm(Record):
    """What a server takes in a request for a completion, and what its stream holds."""

    token_ids: bool = Field(description="a prompt may be a list of token ids; else it is text")
    always: dict[str, Any] = Field(
        default_factory=dict, description="keys that every request has, such as ignore_eos"
    )
    usage_asked: bool = Field(
        description="the stream gives its usage only where stream_options asks for it; else it always does"
    )
    done_mark: bool = Field(description="the stream ends with the event [DONE]; else with the connection's answer")
    token_per_event: bool = Field(description="an event with text holds one token, as long as nothing waits to be sent")


class ServerPlan(Record):
    """The command of a server, and the routes at which it answers.

    The command's arguments may have '{folder}', the model's folder, '{port}', and '{python}', this interpreter.
    """

    command: Command
    ready: str = Field("/health", description="answers 200 to GET as soon as requests are served, and while they are")
    completions: str = Field("/v1/completions", description="takes POST of OpenAI's completions")
    metrics: str | None = Field(None, description="gives Prometheus's text; None where there is none")
    form: RequestForm
    weights: bool = Field(True, description="the model's folder needs weights; else the server makes its own")
