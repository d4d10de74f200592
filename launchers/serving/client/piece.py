"""What one event of a streamed answer says, whichever protocol it is of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Piece(msgspec.Struct, gc=False):
    """What one event says; `answer` counts those to one prompt, `problem` is an error that the server reports."""

    text: str | None = ""
    token_ids: Sequence[int] | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    logprobs: Sequence[float] | None = None
    answer: int = 0
    problem: str = ""
