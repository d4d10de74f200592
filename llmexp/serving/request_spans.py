"""Some of a served run's requests as spans, from the fastest to the slowest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from llmexp.record.spans import TimeSpan
from llmexp.serving.analysis.request_latency import time_per_output_token_s, time_to_first_token_s
from llmexp.serving.record.requests import RequestSample

# Enough to see how the slow ones differ, and few enough to look through.
MOST_REQUESTS = 20
# Of a text that a server answered; MLflow's list shows its begin.
LONGEST_TEXT = 2000


def request_spans(samples: Sequence[RequestSample], loads: Sequence[str]) -> list[TimeSpan]:
    """Return measured requests that spread over all latencies; those without a whole answer count as the slowest."""
    measured = sorted((sample for sample in samples if not sample.warmup), key=_latency_s)
    shown = min(MOST_REQUESTS, len(measured))
    places = [round(number * (len(measured) - 1) / max(1, shown - 1)) for number in range(shown)]
    return [_span(measured[place], place, len(measured), loads) for place in places]


def _latency_s(sample: RequestSample) -> float:
    return inf if sample.problem else sample.end_s - sample.scheduled_s


def _span(sample: RequestSample, place: int, of: int, loads: Sequence[str]) -> TimeSpan:
    known: dict[str, Any] = {
        "request": sample.index,
        "load": loads[sample.point] if sample.point < len(loads) else str(sample.point),
        "slower_than": f"{place} of {of - 1}",
        "input_tokens": sample.usage_prompt_tokens or sample.asked_prompt_tokens,
        "output_tokens": sample.output_tokens,
        "ttft_s": time_to_first_token_s(sample),
        "tpot_s": time_per_output_token_s(sample),
        "http_status": sample.status,
        "finish_reason": sample.finish_reason,
        "text": sample.text[:LONGEST_TEXT],
    }
    said = {name: value for name, value in known.items() if value not in (None, "")}
    end_s = max(sample.end_s, sample.scheduled_s)
    return TimeSpan(
        f"request {sample.index} under {said['load']}",
        sample.scheduled_s,
        end_s,
        said,
        tuple(_phases(sample)),
        sample.problem,
    )


def _phases(sample: RequestSample) -> Iterator[TimeSpan]:
    """Yield what a client can see of a request; the server's own queue is in the first token's time."""
    if sample.sent_s is None:
        return
    yield TimeSpan("queue", sample.scheduled_s, sample.sent_s, {"is": "from when it was due until it was sent"})
    if not (times_s := sample.chunk_times_s):
        return
    tokens = {"input_tokens": sample.usage_prompt_tokens or sample.asked_prompt_tokens}
    first = {"is": "from sending to the first token, with the server's own queue"}
    yield TimeSpan("prefill", sample.sent_s, times_s[0], first | tokens)
    decoded = {"is": "from the first token to the last", "chunks": len(times_s) - 1}
    yield TimeSpan("decode", times_s[0], times_s[-1], decoded)
