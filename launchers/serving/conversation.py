"""A conversation: each request has all that was said before, the server's own answers among it, and new tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmexp.errors import ServerError
from llmexp.launchers.serving.load import Request
from llmexp.record.requests import RequestSample

# The bytes of a request: of its prompt and its output's tokens.
ChatMessage = Callable[[Sequence[int], int], bytes]


@dataclass(frozen=True)
class ChatTurn:
    """What a turn adds to the prompt, and how many tokens of output it asks for."""

    added: Sequence[int]
    output_tokens: int


class LoadConversation:
    """The requests of one conversation, of which the next is made when the answer to the last is there."""

    def __init__(
        self, turns: Sequence[ChatTurn], message: ChatMessage, index: int, is_warmup: bool, pause_s: float
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
                f"serve.turns={len(self._turns)}: the server's answers have no token ids, of which the next turn's "
                "prompt is made"
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
