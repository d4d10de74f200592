"""The requests of a load point: the same for every engine, with bytes that are made beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import body_of
from llmexp.launchers.serving.conversation import Conversation, Turn
from llmexp.launchers.serving.load import Request
from llmexp.plan.draws import Series
from llmexp.plan.lengths import LengthDraw
from llmexp.plan.prompts import Prompts
from llmexp.plan.request_trace import load_trace
from llmexp.plan.server_plan import RequestForm
from llmexp.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.schema.load import TraceConfig

# The turns of a request, one unless it is a conversation, by its number.
Asked = Callable[[int], list[Turn]]


def requests_of(
    plan: ServingPlan, point: LoadPoint, client: Client, form: RequestForm, pause_s: float | None = None
) -> list[Request]:
    """Return the requests that warm the server up, then those that are measured; of conversations the first turns.

    A measured request is the same however many come before it. `pause_s` takes the place of serve.think_time_s.
    """

    def said(number: int, prompt: Sequence[int], output_tokens: int) -> bytes:
        return client.message(form.path, body_of(form, prompt, output_tokens, number))

    pause_s = plan.config.serve.think_time_s if pause_s is None else pause_s
    found: list[Request] = []
    for is_warmup, count in ((True, point.warmup), (False, point.requests)):
        asked = _asked(plan, point, is_warmup)
        for number in range(count):
            index, message = len(found) * point.turns, partial(said, number)
            found.append(Conversation(asked(number), message, index, is_warmup, pause_s).begin())
    return found


def _asked(plan: ServingPlan, point: LoadPoint, is_warmup: bool) -> Asked:
    serve, series = plan.config.serve, Series(plan.config.seed, point.number, is_warmup)
    vocabulary = plan.config.sized_model.vocab_size
    if point.follows == "trace" and serve.trace:
        return _traced(Prompts(vocabulary, series), serve.trace, serve.requests)
    return _drawn(plan, Prompts(vocabulary, series, serve.prefix), point.turns)


def _drawn(plan: ServingPlan, prompts: Prompts, turns: int) -> Asked:
    lengths, outputs = LengthDraw.of(plan.config.serve.prompt), LengthDraw.of(plan.config.serve.output)
    series = prompts.series

    def asked(number: int) -> list[Turn]:
        return [
            Turn(
                prompts.added(number, turn, lengths.at(series, number, turn)),
                outputs.at(series, number, turn),
            )
            for turn in range(turns)
        ]

    return asked


def _traced(prompts: Prompts, trace: TraceConfig, most: int) -> Asked:
    requests = load_trace(trace, most).requests

    def asked(number: int) -> list[Turn]:
        request = requests[number]
        if request.hash_ids:
            prompt = prompts.of_blocks(request.hash_ids, request.prompt_tokens, trace.block_tokens)
        else:
            prompt = prompts.prompt(number, request.prompt_tokens)
        return [Turn(prompt, request.output_tokens)]

    return asked
