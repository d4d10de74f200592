"""Asks a server the fixed set of serve.quality, after its loads.

So what is measured is a server that nobody has asked anything else, and what its loads did to it shows in its answers.
All prompts are asked at once, because servers compute batches by other kernels than single requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from llmexp.launchers.serving.client.address import Address
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import Completion, body_of
from llmexp.launchers.serving.client.connection import Patience, TransferError
from llmexp.launchers.serving.load import run
from llmexp.launchers.serving.prompting.source import PromptSource, TextPrompt
from llmexp.launchers.serving.server.running_server import AnyServer
from llmexp.serving.plan.quality import prompt_tokens, quality_prompts
from llmexp.serving.plan.served_model import served_model
from llmexp.serving.plan.serving_plan import ServingPlan
from llmexp.serving.record.quality import AnswerRecord


def asked_answers(plan: ServingPlan, server: AnyServer, source: PromptSource) -> list[AnswerRecord]:
    """Return the server's answers, with a problem each where it gave none."""
    return run(_answers(plan, server, prompts_of(plan, source)))


def prompts_of(plan: ServingPlan, source: PromptSource) -> list[TextPrompt]:
    """Return the set: random tokens by a fixed seed, or the first of the run's texts that are short enough."""
    config = plan.config
    assert config.serve.quality
    if config.serve.texts:
        most = prompt_tokens(config, plan.positions)
        return [each for each in source.prompts if len(each.ids) <= most][: config.serve.quality.prompts]
    begin = source.alphabet.begin if source.alphabet else ()
    prompts = quality_prompts(config, served_model(config.model), plan.positions, begin, source.tokens)
    takes_ids = plan.server.form.token_ids
    return [TextPrompt(ids=ids, text="" if takes_ids else source.text_of(ids)) for ids in prompts]


async def _answers(plan: ServingPlan, server: AnyServer, prompts: Sequence[TextPrompt]) -> list[AnswerRecord]:
    serve, limit_s = plan.config.serve, plan.config.measure.timeout_s
    patience = Patience(silent_s=serve.silent_timeout_s, answer_s=limit_s)
    async with Client(Address.of(server.url), server.headers, patience) as client:
        return list(await asyncio.gather(*(_answer(plan, client, prompt) for prompt in prompts)))


async def _answer(plan: ServingPlan, client: Client, prompt: TextPrompt) -> AnswerRecord:
    quality, form = plan.config.serve.quality, plan.server.form.telling()
    assert quality
    body = body_of(form, prompt.ids, quality.output_tokens, text_of=lambda _: prompt.text)
    completion, begin_s = Completion(form), time.perf_counter()
    try:
        await client.post(client.message(form.path, body), completion)
        completion.finish(time.perf_counter())
    except TransferError as error:
        completion.problem = completion.problem or str(error)
    times_s = (begin_s, time.perf_counter())
    sample = completion.sample(0, (len(prompt.ids), quality.output_tokens), times_s, begin_s)
    problem = client.without_secrets(sample.problem or "; ".join(sample.differences))
    if problem:
        return AnswerRecord(prompt=prompt.ids, problem=problem)
    logprobs = completion.logprobs if len(completion.logprobs) == quality.output_tokens else None
    return AnswerRecord(prompt=prompt.ids, tokens=sample.token_ids, text=sample.text, logprobs=logprobs)
