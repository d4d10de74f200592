"""The record of serve.quality: a server's answers token by token, and what one process computes at the same places."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from llmexp.record.samples import Record

AnswersVerdict = Literal["same", "changed", "not told"]


class AnswerRecord(Record):
    """A server's answer to one prompt of the set."""

    prompt: list[int] = Field(description="its token ids")
    tokens: list[int] | None = Field(None, description="of the answer; None where the server tells no ids")
    text: str = Field("", description="of the answer, where the server tells no ids")
    logprobs: list[float] | None = Field(None, description="that the server tells of these tokens")
    problem: str = Field("", description="why there is no whole answer")


class ComparedToken(Record):
    """A place of an answer, by one process that reads the prompt and the server's own tokens before it.

    All numbers are in nats: differences of logits, or of natural logarithms of probabilities.
    """

    answer: int = Field(description="the number of the prompt")
    place: int = Field(description="of the token in the answer, from 0")
    token: int | None = Field(description="that the server gave; None where its text is of no likely token")
    likeliest: int = Field(description="the token that the process finds likeliest")
    margin: float = Field(description="of the likeliest token over the second")
    logprob: float | None = Field(None, description="of the server's token, in the exact dtype")
    server_logprob: float | None = Field(None, description="as the server tells it")
    margin_noise: float = Field(description="by how much the margin differs in the served dtype, the most of layouts")
    logprob_noise: float | None = Field(None, description="by how much the logprob does")


class QualityRecord(Record):
    """The content of quality.<rank>.json in a repeat's folder."""

    answers: list[AnswerRecord]
    tokens: list[ComparedToken] = Field(default_factory=list)
    dtype: str = Field("", description="that the server computes in")
    exact_dtype: str = Field("", description="that the process computes in")
    problem: str = Field("", description="why nothing could be compared")


class QualitySummary(Record):
    """What is concluded of a server's answers; shares and nats, None where nothing tells them."""

    verdict: AnswersVerdict
    reason: str
    counted_tokens: int = 0
    agreeing_tokens: int = 0
    uncounted_tokens: int = 0
    noise_nats: float | None = Field(None, description="margins up to it do not count")
    logprob_difference_p50_nats: float | None = None
    logprob_difference_max_nats: float | None = None
    logprob_noise_p50_nats: float | None = None
    expected: list[str] = Field(default_factory=list, description="the options that let a change be expected")

    @property
    def words(self) -> str:
        """The verdict with its reason."""
        because = (
            f", as {' and '.join(self.expected)} lets expect" if self.verdict == "changed" and self.expected else ""
        )
        return f"{self.verdict}{because}: {self.reason}"

    @property
    def is_another_work(self) -> bool:
        """Tell whether the server did other work than it was asked for."""
        return self.verdict == "changed" and not self.expected


def quality_path(repeat: Path, rank: int = 0) -> Path:
    """Return the path of the record."""
    return repeat / f"quality.{rank}.json"
