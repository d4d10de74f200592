"""The verdict on a server's answers: whether they are those of its weights, as far as numerical noise lets tell.

A greedy token counts only where the process that is compared prefers its likeliest token by more than noise explains.
The noise is measured: the same process in the served dtype, in two layouts, beside itself in a more exact one. How
often the verdict errs is simulated (benchmarks/trust_quality.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from llmexp.record.digits import rounded
from llmexp.serving.record.quality import AnswersVerdict, ComparedToken, QualityRecord, QualitySummary

# A server's kernels round otherwise than the process's: margins count from so many times the largest noise seen.
TIMES_THE_NOISE = 2.0
# And the median difference of logprobs may be so many times that of the noise.
TIMES_THE_LOGPROBS = 2.0
# With as many tokens that all agree, fewer than one in twenty would differ (95 % confidence).
FEWEST_TOKENS = 60


def judge_answers(record: QualityRecord, expected: Sequence[str] = ()) -> QualitySummary:
    """Judge a server's answers; `expected` names options that let a change be expected."""
    if record.problem or not record.tokens:
        problems = [answer.problem for answer in record.answers if answer.problem]
        return _not_told(record.problem or next(iter(problems), "the server gave no tokens"), expected)
    noise = TIMES_THE_NOISE * max(each.margin_noise for each in record.tokens)
    counted = [each for each in record.tokens if each.margin > noise]
    found = QualitySummary(
        verdict="same",
        reason="",
        counted_tokens=len(counted),
        agreeing_tokens=sum(each.token == each.likeliest for each in counted),
        uncounted_tokens=len(record.tokens) - len(counted),
        noise_nats=noise,
        expected=list(expected),
        **_logprobs(record.tokens),
    )
    verdict = _verdict(found)
    failed = [answer.problem for answer in record.answers if answer.problem]
    return found.model_copy(update={"verdict": verdict, "reason": _reason(found, counted, failed)})


def _logprobs(tokens: Sequence[ComparedToken]) -> dict[str, float]:
    """Return how far the server's logprobs are from the process's, and how far noise takes these; none without any."""
    pairs = [
        (abs(each.server_logprob - each.logprob), each.logprob_noise or 0.0)
        for each in tokens
        if each.server_logprob is not None and each.logprob is not None
    ]
    if not pairs:
        return {}
    differences, noises = zip(*pairs, strict=True)
    return {
        "logprob_difference_p50_nats": median(differences),
        "logprob_difference_max_nats": max(differences),
        "logprob_noise_p50_nats": median(noises),
    }


def _verdict(found: QualitySummary) -> AnswersVerdict:
    if found.agreeing_tokens < found.counted_tokens or _logprobs_changed(found):
        return "changed"
    return "same" if found.counted_tokens >= FEWEST_TOKENS else "not told"


def _logprobs_changed(found: QualitySummary) -> bool:
    difference, noise = found.logprob_difference_p50_nats, found.logprob_noise_p50_nats
    return difference is not None and noise is not None and difference > TIMES_THE_LOGPROBS * noise


def _reason(found: QualitySummary, counted: Sequence[ComparedToken], failed: Sequence[str]) -> str:
    said = [
        f"{found.agreeing_tokens} of {found.counted_tokens} greedy tokens agree with one process's, of those with a "
        f"margin above {rounded(found.noise_nats or 0.0)} nats"
    ]
    if first := next((each for each in counted if each.token != each.likeliest), None):
        said.append(f"the first that differs is token {first.place + 1} of prompt {first.answer + 1}")
    elif found.counted_tokens < FEWEST_TOKENS:
        said.append(f"fewer than {FEWEST_TOKENS} say little: ask for more with serve.quality.prompts")
    if found.logprob_difference_p50_nats is not None and found.logprob_noise_p50_nats is not None:
        said.append(
            f"logprobs differ by {rounded(found.logprob_difference_p50_nats)} nats (median), by noise alone they would "
            f"by {rounded(found.logprob_noise_p50_nats)}"
        )
    said += [f"{len(failed)} answers failed: {failed[0]}"] if failed else []
    return "; ".join(said)


def _not_told(why: str, expected: Sequence[str]) -> QualitySummary:
    return QualitySummary(verdict="not told", reason=why, expected=list(expected))
