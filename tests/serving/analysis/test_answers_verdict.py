"""The verdict on a server's answers, on records whose truth is made up."""

from __future__ import annotations

import pytest

from llmexp.serving.analysis.quality import FEWEST_TOKENS, TIMES_THE_LOGPROBS, TIMES_THE_NOISE, judge_answers
from llmexp.serving.record.quality import AnswerRecord, ComparedToken, QualityRecord, QualitySummary

NOISE = 0.01
COUNTS = NOISE * TIMES_THE_NOISE


def token(place: int, margin: float = 1.0, is_likeliest: bool = True, off: float | None = None) -> ComparedToken:
    """A token; `off` is the distance of the server's logprob in noises."""
    return ComparedToken(
        answer=place // 16,
        place=place % 16,
        token=7 if is_likeliest else 8,
        likeliest=7,
        margin=margin,
        logprob=-1.0,
        server_logprob=None if off is None else -1.0 - off * 0.002,
        margin_noise=NOISE,
        logprob_noise=0.002,
    )


def judged(tokens: list[ComparedToken], *expected: str, problem: str = "") -> QualitySummary:
    answers = [AnswerRecord(prompt=[1], tokens=[2])]
    return judge_answers(QualityRecord(answers=answers, tokens=tokens, problem=problem), expected)


SAME = [token(place) for place in range(FEWEST_TOKENS)]


def test_tokens_that_all_agree_are_the_same() -> None:
    found = judged(SAME)
    assert (found.verdict, found.counted_tokens, found.agreeing_tokens) == ("same", FEWEST_TOKENS, FEWEST_TOKENS)
    assert found.noise_nats == pytest.approx(COUNTS)
    assert not found.is_another_work


def test_a_token_within_the_noise_does_not_count_and_one_beyond_it_does() -> None:
    within = judged([*SAME, token(99, COUNTS * 0.99, is_likeliest=False)])
    assert (within.verdict, within.uncounted_tokens) == ("same", 1)
    beyond = judged([*SAME, token(99, COUNTS * 1.01, is_likeliest=False)])
    assert (beyond.verdict, beyond.counted_tokens - beyond.agreeing_tokens) == ("changed", 1)
    assert "the first that differs is token 4 of prompt 7" in beyond.words
    assert beyond.is_another_work


def test_too_few_tokens_tell_nothing_but_one_that_differs() -> None:
    assert judged(SAME[1:]).verdict == "not told"
    assert "serve.quality.prompts" in judged(SAME[1:]).reason
    assert judged([token(0, is_likeliest=False)]).verdict == "changed"


@pytest.mark.parametrize(
    ("off", "verdict"), [(TIMES_THE_LOGPROBS * 0.9, "same"), (TIMES_THE_LOGPROBS * 1.1, "changed")]
)
def test_logprobs_that_are_further_off_than_rounding_takes_them_are_a_change(off: float, verdict: str) -> None:
    found = judged([token(place, off=off) for place in range(FEWEST_TOKENS)])
    assert found.verdict == verdict
    assert found.logprob_difference_p50_nats == pytest.approx(off * 0.002)


def test_a_change_that_a_format_lets_expect_is_said_and_does_not_speak_against_the_run() -> None:
    found = judged([*SAME, token(99, is_likeliest=False)], "engine.options.quantization=bnb-4bit")
    assert found.words.startswith("changed, as engine.options.quantization=bnb-4bit lets expect: ")
    assert not found.is_another_work


def test_what_could_not_be_compared_says_why() -> None:
    assert judged([], problem="no room").words == "not told: no room"
    failed = judge_answers(QualityRecord(answers=[AnswerRecord(prompt=[1], problem="HTTP status 500")]))
    assert failed.words == "not told: HTTP status 500"
