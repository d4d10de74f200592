"""Which requests are shown as spans, and which phases they have."""

from __future__ import annotations

from itertools import pairwise

import pytest
from served_requests import answer

from llmexp.serving.request_spans import MOST_REQUESTS, request_spans


def test_the_fastest_the_slowest_and_those_between_are_shown():
    spans = request_spans([answer(index, takes_s=100 - index) for index in range(99)], ["4/s"])
    took_s = [span.end_s - span.start_s for span in spans]
    assert len(took_s) == MOST_REQUESTS
    assert took_s == sorted(took_s)
    assert (took_s[0], took_s[-1]) == (2, 100)
    steps_s = [after - before for before, after in pairwise(took_s)]
    assert max(steps_s) - min(steps_s) <= 1


def test_few_requests_are_all_shown_and_a_warm_up_is_not():
    spans = request_spans([answer(0, warmup=True), answer(1), answer(2)], ["4/s"])
    assert [span.known["request"] for span in spans] == [1, 2]
    assert request_spans([], []) == []


def test_one_without_a_whole_answer_counts_as_the_slowest():
    spans = request_spans([answer(0, problem="cut", takes_s=0.1), answer(1)], ["4/s"])
    assert [(span.known["request"], span.problem) for span in spans] == [(1, ""), (0, "cut")]


def test_phases_are_those_that_a_client_sees():
    [span] = request_spans([answer(0, due_s=1.0, sent_s=1.5, takes_s=2.0, tokens=3)], ["4/s"])
    assert [(part.name, part.start_s, part.end_s) for part in span.parts] == [
        ("queue", 1.0, 1.5),
        ("prefill", 1.5, 2.5),
        ("decode", 2.5, pytest.approx(3.5)),
    ]
    assert (span.known["load"], span.known["ttft_s"], span.known["tpot_s"]) == ("4/s", 1.5, pytest.approx(0.5))


def test_a_request_that_was_never_sent_has_no_phases():
    [span] = request_spans([answer(0, sent_s=None, chunk_us=[], problem="no connection")], [])
    assert (span.parts, span.known["load"]) == ((), "0")
