"""A request for a completion as its server wants it, and what the answer says, event by event or whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from llmexp.launchers.serving.client.events import EventReader
from llmexp.launchers.serving.client.generate_stream import read_token
from llmexp.launchers.serving.client.piece import Piece
from llmexp.launchers.serving.words import text_of, tokens_of
from llmexp.record.reading import plain
from llmexp.serving.plan.server_plan import ADAPTER, OUTPUT_TOKENS, PROMPT, SEED, TOKENS, RequestForm, adapter_name
from llmexp.serving.record.requests import RequestSample, gaps_us

DONE = b"[DONE]"
# Of a body that is no stream of events, such as that of a refusal.
QUOTED_BYTES = 500


class _Logprobs(msgspec.Struct, gc=False):
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    text: str | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None

    @property
    def told(self) -> list[float] | None:
        """The logprobs of this piece's tokens; None where one of them is not told."""
        found = self.logprobs.token_logprobs if self.logprobs else None
        return None if found is None or None in found else found  # type: ignore[return-value]


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: str | None = None


# Python's own json takes ten times as long, which was half of a stream's cost.
_decode = msgspec.json.Decoder(_Event).decode


def read_completion(data: bytes) -> Piece:
    """Return what an event of /v1/completions says; raises ValueError or msgspec's own error where it is none."""
    event = _decode(data)
    if event.error or event.object == "error":
        return Piece(problem=_error(event))
    return _said(event.choices[0] if event.choices else _Choice(), event.usage)


def read_answers(data: bytes) -> list[Piece]:
    """Return each answer of a whole /v1/completions; raises ValueError or msgspec's own error where it is none."""
    event = _decode(data)
    if event.error or event.object == "error":
        return [Piece(problem=_error(event))]
    return [_said(choice, event.usage) for choice in event.choices or ()]


def _said(choice: _Choice, usage: _Usage | None) -> Piece:
    logprobs = choice.told if choice.logprobs else None
    if usage is None:
        return Piece(choice.text, choice.token_ids, choice.finish_reason, logprobs=logprobs, answer=choice.index)
    counts = usage.prompt_tokens, usage.completion_tokens
    return Piece(choice.text, choice.token_ids, choice.finish_reason, *counts, logprobs=logprobs, answer=choice.index)


# By the name that a form has for its server's events.
READERS: dict[str, Callable[[bytes], Piece]] = {"completions": read_completion, "generate_stream": read_token}


def body_of(
    form: RequestForm,
    prompt: Sequence[int],
    output_tokens: int,
    number: int = 0,
    text_of: Callable[[Sequence[int]], str] = text_of,
) -> bytes:
    """Return the JSON of a request for so many tokens after a prompt of token ids; its number chooses adapter and seed.

    `text_of` gives the prompt's text for a server that takes text.
    """
    own = {PROMPT: list(prompt) if form.token_ids else text_of(prompt), OUTPUT_TOKENS: output_tokens}
    own |= {TOKENS: len(prompt) + output_tokens, SEED: number}
    own |= {ADAPTER: adapter_name(number % form.adapters)} if form.adapters else {}
    return json.dumps(_filled(form.body, own), separators=(",", ":")).encode()


def _filled(value: Any, own: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(each, own) for key, each in value.items()}
    return own.get(value, value) if isinstance(value, str) else value


class Completion:
    """Takes in an answer: what it said, and when its chunks came; what is not streamed has no such times."""

    def __init__(self, form: RequestForm) -> None:
        self._read, self._is_words, self._answers_asked = READERS[form.events], form.words, form.answers
        self._events, self._whole = EventReader(), None if form.streams else bytearray()
        self._quoted = b""
        self._any = self._is_done = False
        self.status: int | None = None
        self.sent_s: float | None = None
        self.first_byte_s: float | None = None
        self.times_s: list[float] = []
        self.texts: list[str] = []
        self.ids: list[Sequence[int]] = []
        self.answers: list[int] = []
        self.logprobs: list[float] = []
        self.usage: list[int | None] = [None, None]
        self.finish_reason = self.problem = ""

    def sent(self, at_s: float) -> None:
        """Take the time at which the request was written."""
        self.sent_s = at_s

    def arrived(self, at_s: float) -> None:
        """Take the time of the first byte."""
        if self.first_byte_s is None:
            self.first_byte_s = at_s

    def headed(self, status: int) -> None:
        """Take the status."""
        self.status = status

    def body(self, data: bytes, at_s: float) -> None:
        """Take bytes of the answer; what comes after a stream's [DONE] or a problem is not read."""
        if self._whole is not None:
            self._whole += data
        if not self._any and len(self._quoted) < QUOTED_BYTES:
            self._quoted += data[:QUOTED_BYTES]
        if self.status != 200 or self._is_done or self.problem or self._whole is not None:
            return
        try:
            self._take(self._events.feed(data), at_s)
        except ValueError as error:
            self.problem = str(error)

    def finish(self, at_s: float) -> None:
        """Say that the answer ended as HTTP has it; whether it is whole decides its content."""
        if self.status != 200:
            self.problem = f"HTTP status {self.status}: {self._quote()}"
        elif self._whole is not None:
            self._take_whole(bytes(self._whole))
        elif not self.problem and not self._is_done:
            self._take(self._events.finish(), at_s)
        if not self.problem and not self._any:
            self.problem = f"the answer is not an event stream: {self._quote()}"
        if not self.problem and not (self._is_done or self.finish_reason):
            self.problem = "the stream ended before its last token"

    def _take_whole(self, data: bytes) -> None:
        """Take the answers that came together, at no time of their own."""
        try:
            pieces = read_answers(data)
        except (ValueError, msgspec.MsgspecError):
            pieces = []
        self._any = self._is_done = True
        for piece in pieces or [Piece(problem=f"the answer is no completion: {_line(data)}")]:
            self._keep(piece)
            self._keep_end(piece)

    def _keep(self, piece: Piece) -> None:
        self.texts.append(piece.text or "")
        self.ids.append(piece.token_ids or ())
        self.answers.append(piece.answer)

    def _take(self, events: list[bytes], at_s: float) -> None:
        for data in events:
            self._any = True
            if data == DONE:
                self._is_done = True
            if self._is_done or self.problem:
                return
            try:
                piece = self._read(data)
            except (ValueError, msgspec.MsgspecError):
                self.problem = f"cannot parse an event of the stream: {_line(data)}"
                return
            # One that shows nothing, because it only opens or ends the stream, is no token.
            if piece.text or piece.token_ids:
                self.times_s.append(at_s)
                self._keep(piece)
            if piece.logprobs:
                self.logprobs += piece.logprobs
            self._keep_end(piece)

    def _keep_end(self, piece: Piece) -> None:
        """Keep what the last events say; none of it is taken back by a later event."""
        self.finish_reason = piece.finish_reason or self.finish_reason
        self.problem = piece.problem
        if piece.prompt_tokens is not None:
            self.usage[0] = piece.prompt_tokens
        if piece.output_tokens is not None:
            self.usage[1] = piece.output_tokens

    def _quote(self) -> str:
        return _line(self._quoted) or "nothing"

    def _token_ids(self) -> list[Sequence[int]] | None:
        """Return the tokens of each chunk, as the server told them or as its words say; None where neither does."""
        if self.ids and all(self.ids):
            return self.ids
        if not (self.texts and self._is_words):
            return None
        try:
            return [tokens_of(text) for text in self.texts]
        except ValueError:  # another vocabulary, or a word in two chunks
            return None

    def sample(self, index: int, asked: tuple[int, int], at_s: tuple[float, float], origin_s: float) -> RequestSample:
        """Return the record: of `asked` tokens of the prompt and of each answer, due and ended at these times."""
        ids = self._token_ids()
        since_s = self.sent_s if self.sent_s is not None else at_s[0]
        by_answer = sorted(range(len(self.answers)), key=self.answers.__getitem__)
        return RequestSample(
            index=index,
            warmup=False,
            t_start_s=at_s[0] - origin_s,
            t_end_s=at_s[1] - origin_s,
            sent_s=None if self.sent_s is None else self.sent_s - origin_s,
            first_byte_s=None if self.first_byte_s is None else self.first_byte_s - origin_s,
            chunk_us=gaps_us(self.times_s, since_s),
            chunk_tokens=[len(each) for each in ids] if ids is not None and self.times_s else None,
            chunk_answers=self.answers if any(self.answers) and self.times_s else None,
            status=self.status,
            asked_prompt_tokens=asked[0],
            asked_output_tokens=asked[1] * self._answers_asked,
            usage_prompt_tokens=self.usage[0],
            usage_output_tokens=self.usage[1],
            text="".join(self.texts[place] for place in by_answer) if ids is None or not self._is_words else "",
            token_ids=None if ids is None else [token for place in by_answer for token in ids[place]],
            finish_reason=self.finish_reason,
            problem=self.problem,
        )


def _error(event: _Event) -> str:
    error = event.error or event.message
    said = error.get("message") or error if isinstance(error, dict) else error
    return f"the server reports in its stream: {_line(str(said).encode())}"


def _line(data: bytes) -> str:
    return plain(" ".join(data[:QUOTED_BYTES].decode("utf-8", "replace").split()))
