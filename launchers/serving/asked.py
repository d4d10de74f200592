"""The requests of a load point: the same for every engine, with bytes that are made beforehand."""

from __future__ import annotations

from collections.abc import Callable

from llmexp.launchers.serving.client import Client
from llmexp.launchers.serving.completions import body_of
from llmexp.launchers.serving.load import Request
from llmexp.plan.draws import Series
from llmexp.plan.lengths import LengthDraw
from llmexp.plan.prompts import Prompts
from llmexp.plan.request_trace import load_trace
from llmexp.plan.server_plan import RequestForm
from llmexp.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.schema.load import TraceConfig

# A request's prompt and its output's tokens, by its number.
Asked = Callable[[int], tuple[list[int], int]]


def requests_of(plan: ServingPlan, point: LoadPoint, client: Client, form: RequestForm) -> list[Request]:
    """Return the requests that warm the server up, then those that are measured.

    A measured request is the same however many come before it.
    """
    found: list[Request] = []
    for is_warmup, count in ((True, point.warmup), (False, point.requests)):
        asked = _asked(plan, point, is_warmup)
        for number in range(count):
            prompt, tokens = asked(number)
            message = client.message(form.path, body_of(form, prompt, tokens, number))
            found.append(Request(len(found), message, len(prompt), tokens, is_warmup))
    return found


def _asked(plan: ServingPlan, point: LoadPoint, is_warmup: bool) -> Asked:
    serve, series = plan.config.serve, Series(plan.config.seed, point.number, is_warmup)
    vocabulary = plan.config.sized_model.vocab_size
    if point.follows == "trace" and serve.trace:
        return _traced(Prompts(vocabulary, series), serve.trace, serve.requests)
    return _drawn(plan, Prompts(vocabulary, series, serve.prefix))


def _drawn(plan: ServingPlan, prompts: Prompts) -> Asked:
    lengths, outputs = LengthDraw.of(plan.config.serve.prompt), LengthDraw.of(plan.config.serve.output)
    series = prompts.series

    def asked(number: int) -> tuple[list[int], int]:
        return prompts.prompt(number, lengths.at(series, number)), outputs.at(series, number)

    return asked


def _traced(prompts: Prompts, trace: TraceConfig, most: int) -> Asked:
    requests = load_trace(trace, most).requests

    def asked(number: int) -> tuple[list[int], int]:
        request = requests[number]
        if request.hash_ids:
            prompt = prompts.of_blocks(request.hash_ids, request.prompt_tokens, trace.block_tokens)
        else:
            prompt = prompts.prompt(number, request.prompt_tokens)
        return prompt, request.output_tokens

    return asked
