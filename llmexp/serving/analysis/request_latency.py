"""Latencies of requests, from when they were due and from when they were sent, and which of them kept an objective.

A load generator that counts from the sending alone leaves out the time that a request waited because the server, or the
generator, was busy ("coordinated omission"). The definitions are those that vLLM's own benchmark uses, but for the
origin, for tokens, which are never counted by chunks, and for the end-to-end latency, which has the last byte in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Literal, Protocol

from llmexp.serving.analysis.load_window import LoadWindow
from llmexp.serving.record.requests import RequestSample

Origin = Literal["scheduled", "sent"]


def time_to_first_token_s(sample: RequestSample, origin: Origin = "scheduled") -> float | None:
    """Return the time until the first chunk with output came; None where none came."""
    if not sample.chunk_us or sample.sent_s is None:
        return None
    return sample.sent_s + sample.chunk_us[0] / 1e6 - _origin_s(sample, origin)


def end_to_end_s(sample: RequestSample, origin: Origin = "scheduled") -> float | None:
    """Return the time until the answer's last byte; None where there is no whole answer."""
    return None if sample.problem else sample.end_s - _origin_s(sample, origin)


def time_per_output_token_s(sample: RequestSample) -> float | None:
    """Return the mean time of the tokens after the first.

    It is the time from the first chunk with output to the last, over all tokens but one. What comes after the output,
    such as the server's count of tokens, takes no part. Several tokens in the first chunk count as tokens without time,
    as in vLLM's own benchmark. Of several answers to a prompt, it is the time that each takes, over the tokens after
    its first. None where there is no whole answer, no output, nobody counted its tokens, or no token comes after a
    first.
    """
    tokens, answers = sample.output_tokens, sample.answer_chunks
    if sample.problem or not answers or tokens is None or tokens <= len(answers):
        return None
    return sum(chunks[-1].at_us - chunks[0].at_us for chunks in answers) / 1e6 / (tokens - len(answers))


def inter_token_s(sample: RequestSample) -> list[float]:
    """Return the gaps between tokens as a reader of the stream sees them.

    Tokens that came in one chunk have no time between them, where their ids tell how many they are. Otherwise these are
    the gaps between chunks. Those of several answers to a prompt are each within its answer.
    """
    gaps_s: list[float] = []
    for chunks in sample.answer_chunks:
        gaps_s += [0.0] * ((chunks[0].tokens or 1) - 1)
        for before, chunk in pairwise(chunks):
            gaps_s += [(chunk.at_us - before.at_us) / 1e6] + [0.0] * ((chunk.tokens or 1) - 1)
    return gaps_s


def send_delay_s(sample: RequestSample) -> float | None:
    """Return how long after it was due a request was sent; None where it never was."""
    return None if sample.sent_s is None else sample.sent_s - sample.scheduled_s


def latencies(samples: Sequence[RequestSample]) -> dict[str, list[float]]:
    """Return the values of every kind of latency, in seconds; those of the first two count from when it was due."""
    found: dict[str, list[float | None] | list[float]] = {
        "ttft": [time_to_first_token_s(sample) for sample in samples],
        "end_to_end": [end_to_end_s(sample) for sample in samples],
        "tpot": [time_per_output_token_s(sample) for sample in samples],
        "inter_token": [gap_s for sample in samples for gap_s in inter_token_s(sample)],
        "ttft_from_send": [time_to_first_token_s(sample, "sent") for sample in samples],
        "end_to_end_from_send": [end_to_end_s(sample, "sent") for sample in samples],
        "send_delay": [send_delay_s(sample) for sample in samples],
    }
    return {kind: [each for each in times_s if each is not None] for kind, times_s in found.items()}


class Limits(Protocol):
    """What serve.slo asks, in seconds; None asks nothing."""

    @property
    def ttft_s(self) -> float | None:
        """Until the first token."""

    @property
    def tpot_s(self) -> float | None:
        """For each output token after the first."""

    @property
    def end_to_end_s(self) -> float | None:
        """Until the answer's last byte."""


@dataclass(frozen=True)
class Objective:
    """What a request has to keep; None asks nothing. Latencies count from when the request was due."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    end_to_end_s: float | None = None

    @classmethod
    def of(cls, limits: Limits) -> Objective | None:
        """Return the objective of a configuration; None where it asks nothing."""
        found = cls(limits.ttft_s, limits.tpot_s, limits.end_to_end_s)
        return None if found == cls() else found

    def used_by(self, sample: RequestSample) -> float | None:
        """Return the largest share of a limit that a request used; it kept the objective with 1 or less.

        Infinite where it was not answered wholly, or not as it was asked, or showed no output. A single token has no
        time per token, and so uses none of it. None where that time is limited, nobody counted the tokens, and no other
        limit was missed.
        """
        if sample.problem or sample.differences:
            return inf
        tpot_s = 0.0 if sample.output_tokens in (0, 1) else time_per_output_token_s(sample)
        known = (
            (self.ttft_s, time_to_first_token_s(sample)),
            (self.tpot_s, 0.0 if sample.output_tokens is None else tpot_s),
            (self.end_to_end_s, end_to_end_s(sample)),
        )
        shares = [inf if found is None else found / limit for limit, found in known if limit is not None]
        used = max(shares, default=0.0)
        return None if self.tpot_s is not None and sample.output_tokens is None and used <= 1 else used

    def is_kept_by(self, sample: RequestSample) -> bool | None:
        """Say whether a request was answered wholly, as it was asked, and in time; None where that is not known."""
        used = self.used_by(sample)
        return None if used is None else used <= 1


def goodput_per_s(samples: Sequence[RequestSample], objective: Objective) -> float | None:
    """Return the requests a second that kept the objective, over the window that all rates of a load point have.

    None where it is not known of every request whether it did.
    """
    kept = [is_kept for one in samples if (is_kept := objective.is_kept_by(one)) is not None]
    if len(kept) < len(samples):
        return None
    return LoadWindow.of(samples).per_s(sum(kept)) if samples else 0.0


def _origin_s(sample: RequestSample, origin: Origin) -> float:
    if origin == "scheduled" or sample.sent_s is None:
        return sample.scheduled_s
    return sample.sent_s
