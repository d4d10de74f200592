"""The record of one request to a server: a line of samples.<rank>.jsonl of a run that serves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

from pydantic import ConfigDict, Field

from llmexp.record.samples import Sample

# The problem of a request that was at work when its load was ended, for example because the server had ended.
ENDED_AT_WORK = "the load ended before the answer was complete"


class Chunk(NamedTuple):
    """A piece of an answer: when it came, in microseconds since the request was sent, and its tokens where known."""

    at_us: int
    tokens: int | None


class RequestSample(Sample):
    """One request; it starts when it was due, whenever it was really sent, and ends with the answer's last byte.

    All times are seconds since the rank started its loop, by the client's clock.
    """

    point: int = Field(0, description="the number of its load point")
    turn: int = Field(0, description="of its conversation, counted from 0")
    sent_s: float | None = Field(None, description="when it was written to the connection; None where it never was")
    first_byte_s: float | None = Field(None, description="of the answer, its head included")
    chunk_us: list[int] = Field(
        default_factory=list,
        description="when chunks with output came: whole microseconds, the first since sent_s, each other since the "
        "one before",
    )
    chunk_tokens: list[int] | None = Field(
        None, description="tokens of each of these chunks by their ids; None where the server tells no ids"
    )
    chunk_answers: list[int] | None = Field(
        None, description="which of several answers to its prompt each of these chunks is of; None for one answer"
    )
    status: int | None = Field(None, description="HTTP's status; None where there was no answer")
    asked_prompt_tokens: int
    asked_output_tokens: int = Field(description="of all its answers together")
    usage_prompt_tokens: int | None = Field(None, description="as the server counted them; None where it did not")
    usage_output_tokens: int | None = None
    text: str = Field("", description="of the output; empty where its ids are known")
    token_ids: list[int] | None = Field(
        None, description="of the output, answer by answer; None where the server tells no ids"
    )
    finish_reason: str = ""
    problem: str = Field("", description="why there is no whole answer")

    model_config = ConfigDict(extra="forbid")

    @property
    def scheduled_s(self) -> float:
        """The time at which the request was due."""
        return self.t_start_s

    @property
    def end_s(self) -> float:
        """The time of the answer's last byte, or of the problem."""
        return self.t_end_s

    @property
    def was_at_work(self) -> bool:
        """Tell whether the load was ended while the request was at work."""
        return self.problem == ENDED_AT_WORK

    @property
    def chunk_times_s(self) -> list[float]:
        """The times at which chunks with output came."""
        return [(self.sent_s or 0.0) + us / 1e6 for us in accumulate(self.chunk_us)]

    @property
    def answer_chunks(self) -> list[list[Chunk]]:
        """The chunks of each answer in their order; of one answer where the request asked for no more."""
        at_us = accumulate(self.chunk_us)
        tokens, of = self.chunk_tokens or repeat(None), self.chunk_answers or repeat(0)
        answers: dict[int, list[Chunk]] = {}
        for answer, us, count in zip(of, at_us, tokens, strict=False):
            answers.setdefault(answer, []).append(Chunk(us, count))
        return list(answers.values())

    @property
    def output_tokens(self) -> int | None:
        """The tokens of the output by the server's count, else by their ids; chunks are never counted as tokens."""
        if self.usage_output_tokens is not None or self.token_ids is None:
            return self.usage_output_tokens
        return len(self.token_ids)

    @property
    def differences(self) -> list[str]:
        """What the server did otherwise than it was asked; an answer that is not whole has a problem instead."""
        if self.problem:
            return []
        by_ids = None if self.token_ids is None else len(self.token_ids)
        counts = (
            ("prompt tokens", self.asked_prompt_tokens, "the server counted", self.usage_prompt_tokens),
            ("output tokens", self.asked_output_tokens, "the server counted", self.usage_output_tokens),
            ("output tokens", self.asked_output_tokens, "it sent", by_ids),
        )
        return [
            f"{asked} {what} were asked for, {who} {found}"
            for what, asked, who, found in counts
            if found is not None and found != asked
        ]

    @property
    def amount(self) -> float:
        """The output's tokens; 0 where there is a problem or nobody counted them."""
        return 0.0 if self.problem else float(self.output_tokens or 0)


def gaps_us(times_s: Sequence[float], since_s: float) -> list[int]:
    """Return times as chunk_us has them; what rounding takes from one gap the next one gets."""
    return [after - before for before, after in pairwise([0, *_whole_us(times_s, since_s)])]


def _whole_us(times_s: Iterable[float], since_s: float) -> Iterable[int]:
    return (round((time_s - since_s) * 1e6) for time_s in times_s)
