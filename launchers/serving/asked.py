"""The requests of a load point: their prompts are the same for every engine, and their bytes are made beforehand."""

from __future__ import annotations

from random import Random

from llmexp.launchers.serving.client import Client
from llmexp.launchers.serving.completions import body_of
from llmexp.launchers.serving.load import Request
from llmexp.plan.server_plan import RequestForm
from llmexp.plan.serving_plan import LoadPoint, ServingPlan


def requests_of(plan: ServingPlan, point: LoadPoint, client: Client, form: RequestForm) -> list[Request]:
    """Return the requests that warm the server up, then those that are measured."""
    serve = plan.config.serve
    found = []
    for index in range(point.warmup + point.requests):
        prompt = _prompt(plan, point.number, index)
        message = client.message(form.path, body_of(form, prompt, serve.output.tokens))
        is_warmup = index < point.warmup
        found.append(Request(index, message, len(prompt), serve.output.tokens, is_warmup))
    return found


def _prompt(plan: ServingPlan, point: int, index: int) -> list[int]:
    config = plan.config
    vocabulary = range(config.sized_model.vocab_size)
    random = Random(f"{config.seed} {point} {index}")
    return random.choices(vocabulary, k=config.serve.prompt.tokens)
