"""The requests of a load point: the same for every engine, with bytes that are made beforehand."""

from __future__ import annotations

from llmexp.launchers.serving.client import Client
from llmexp.launchers.serving.completions import body_of
from llmexp.launchers.serving.load import Request
from llmexp.plan.draws import Series
from llmexp.plan.lengths import LengthDraw
from llmexp.plan.prompts import Prompts
from llmexp.plan.server_plan import RequestForm
from llmexp.plan.serving_plan import LoadPoint, ServingPlan


def requests_of(plan: ServingPlan, point: LoadPoint, client: Client, form: RequestForm) -> list[Request]:
    """Return the requests that warm the server up, then those that are measured.

    A measured request is the same however many come before it.
    """
    serve, found = plan.config.serve, list[Request]()
    lengths, outputs = LengthDraw.of(serve.prompt), LengthDraw.of(serve.output)
    for is_warmup, count in ((True, point.warmup), (False, point.requests)):
        series = Series(plan.config.seed, point.number, is_warmup)
        prompts = Prompts(plan.config.sized_model.vocab_size, series, serve.prefix)
        for number in range(count):
            prompt = prompts.prompt(number, lengths.at(series, number))
            tokens = outputs.at(series, number)
            message = client.message(form.path, body_of(form, prompt, tokens))
            found.append(Request(len(found), message, len(prompt), tokens, is_warmup))
    return found
