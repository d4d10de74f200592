"""The events of /generate_stream, which text-generation-inference 3.3.7 and LightLLM 1.0.1 stream: a token each.

Both name the token's id and text. text-generation-inference counts the request's tokens in the last event's details,
LightLLM in every event beside its token.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llmexp.launchers.serving.client.piece import Piece


class _Token(msgspec.Struct, gc=False):
    id: int | None = None
    text: str | None = None
    logprob: float | None = None
    prompt_tokens: int | None = None
    count_output_tokens: int | None = None


class _Details(msgspec.Struct, gc=False):
    finish_reason: str | None = None
    generated_tokens: int | None = None
    input_length: int | None = None


class _Event(msgspec.Struct, gc=False):
    token: _Token | None = None
    details: _Details | None = None
    finish_reason: str | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


def read_token(data: bytes) -> Piece:
    """Return what an event of /generate_stream says; raises ValueError or msgspec's own error where it is none."""
    event = _decode(data)
    if event.error is not None:
        return Piece(problem=f"the server reports in its stream: {' '.join(str(event.error).split())}")
    token = event.token
    if token is None:
        raise ValueError("neither a token nor an error")
    ids = None if token.id is None else (token.id,)
    logprobs = None if token.logprob is None else (token.logprob,)
    if event.details is None:
        # LightLLM says 0 for a count that it does not know.
        counts = token.prompt_tokens or None, token.count_output_tokens
        return Piece(token.text, ids, event.finish_reason, *counts, logprobs=logprobs)
    ended = event.details
    counted = ended.input_length, ended.generated_tokens
    return Piece(token.text, ids, ended.finish_reason, *counted, logprobs=logprobs)
