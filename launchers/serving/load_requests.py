"""The requests of a load point: the same for every engine, with bytes that are made beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from llmexp.errors import ServerError
from llmexp.launchers.serving.client.client import Client
from llmexp.launchers.serving.client.completions import body_of
from llmexp.launchers.serving.load import Request
from llmexp.launchers.serving.prompting.source import PromptSource
from llmexp.serving.config.load import TraceConfig
from llmexp.serving.plan.draws import DrawSeries
from llmexp.serving.plan.lengths import LengthDraw
from llmexp.serving.plan.prompts import Prompts
from llmexp.serving.plan.request_trace import load_trace
from llmexp.serving.plan.served_model import served_model
from llmexp.serving.plan.server_plan import RequestForm
from llmexp.serving.plan.serving_plan import LoadPoint, ServingPlan
from llmexp.serving.record.requests import RequestSample

NO_SOURCE = PromptSource()
# The bytes of a request: of its prompt and its output's tokens.
_ChatMessage = Callable[[Sequence[int], int], bytes]


@dataclass(frozen=True)
class _ChatTurn:
    """What a turn adds to the prompt, and how many tokens of output it asks for."""

    added: Sequence[int]
    output_tokens: int


# The turns of a request, one unless it is a conversation, by its number.
Asked = Callable[[int], list[_ChatTurn]]


class _LoadConversation:
    """The requests of one conversation, of which the next is made when the answer to the last is there."""

    def __init__(
        self, turns: Sequence[_ChatTurn], message: _ChatMessage, index: int, is_warmup: bool, pause_s: float
    ) -> None:
        self._turns, self._message, self._index = turns, message, index
        self._is_warmup, self._pause_s = is_warmup, pause_s
        self._said: list[int] = []
        self._turn = 0

    def begin(self) -> Request:
        """Return the first request."""
        self._said += self._turns[0].added
        return self._request(self._message(self._said, self._turns[0].output_tokens))

    def _next(self, sample: RequestSample) -> Request:
        """Return the next request, without bytes where the last one failed.

        Raises ServerError where the answer tells no token ids.
        """
        if sample.problem:
            told: Sequence[int] = [0] * self._turns[self._turn].output_tokens
        elif sample.token_ids is None:
            raise ServerError(
                f"serve.turns={len(self._turns)}: the server's answers have no token ids, which the next turn's "
                f"prompt needs"
            )
        else:
            told = sample.token_ids
        self._turn += 1
        turn = self._turns[self._turn]
        self._said += [*told, *turn.added]
        return self._request(b"" if sample.problem else self._message(self._said, turn.output_tokens))

    def _request(self, message: bytes) -> Request:
        return Request(
            self._index + self._turn,
            message,
            len(self._said),
            self._turns[self._turn].output_tokens,
            self._is_warmup,
            self._turn,
            self._next if self._turn + 1 < len(self._turns) else None,
            self._pause_s,
        )


def requests_of(
    plan: ServingPlan,
    point: LoadPoint,
    client: Client,
    form: RequestForm,
    source: PromptSource = NO_SOURCE,
) -> list[Request]:
    """Return the requests that warm the server up, then those that are measured; of conversations the first turns.

    A measured request is the same however many come before it.
    """

    def said(number: int, prompt: Sequence[int], output_tokens: int) -> bytes:
        return client.message(form.path, body_of(form, prompt, output_tokens, number, source.text_of))

    pause_s = plan.config.serve.think_time_s
    if plan.config.serve.texts:
        return _of_texts(plan, point, client, form, source)
    found: list[Request] = []
    for is_warmup, count in ((True, point.warmup), (False, point.requests)):
        asked = _asked(plan, point, is_warmup, source)
        for number in range(count):
            index, message = len(found) * point.turns, partial(said, number)
            found.append(_LoadConversation(asked(number), message, index, is_warmup, pause_s).begin())
    return found


def _of_texts(
    plan: ServingPlan, point: LoadPoint, client: Client, form: RequestForm, source: PromptSource
) -> list[Request]:
    """Return the requests whose prompts are texts, as long as these are."""
    outputs, answers = LengthDraw.of(plan.config.serve.output), plan.config.serve.texts
    found: list[Request] = []
    for is_warmup, count in ((True, point.warmup), (False, point.requests)):
        series = DrawSeries(plan.config.seed, point.number, is_warmup)
        for number in range(count):
            prompt = source.of_request(plan, point, number, is_warmup)
            tokens = prompt.answer_tokens if answers and answers.answers else outputs.at(series, number)
            text_of = source.text_of if form.words else lambda _, text=prompt.text: text
            message = client.message(form.path, body_of(form, prompt.ids, tokens, number, text_of))
            found.append(Request(len(found), message, len(prompt.ids), tokens, is_warmup))
    return found


def _asked(plan: ServingPlan, point: LoadPoint, is_warmup: bool, source: PromptSource) -> Asked:
    serve, series = plan.config.serve, DrawSeries(plan.config.seed, point.number, is_warmup)
    vocabulary, begin = served_model(plan.config.model).vocab_size, source.alphabet.begin if source.alphabet else ()
    if point.follows == "trace" and serve.trace:
        prompts = Prompts(vocabulary, series, begin=begin, tokens=source.tokens)
        return _traced(prompts, serve.trace, serve.requests)
    return _drawn(plan, Prompts(vocabulary, series, serve.prefix, begin, source.tokens), point.turns)


def _drawn(plan: ServingPlan, prompts: Prompts, turns: int) -> Asked:
    lengths, outputs = LengthDraw.of(plan.config.serve.prompt), LengthDraw.of(plan.config.serve.output)
    series = prompts.series

    def asked(number: int) -> list[_ChatTurn]:
        return [
            _ChatTurn(
                prompts.added(number, turn, lengths.at(series, number, turn)),
                outputs.at(series, number, turn),
            )
            for turn in range(turns)
        ]

    return asked


def _traced(prompts: Prompts, trace: TraceConfig, most: int) -> Asked:
    requests = load_trace(trace, most).requests

    def asked(number: int) -> list[_ChatTurn]:
        request = requests[number]
        if request.hash_ids:
            prompt = prompts.of_blocks(request.hash_ids, request.prompt_tokens, trace.block_tokens)
        else:
            prompt = prompts.prompt(number, request.prompt_tokens)
        return [_ChatTurn(prompt, request.output_tokens)]

    return asked
