from __future__ import annotations

from served_requests import answer

from llmexp.serving.analysis.load_window import LoadWindow
from llmexp.serving.record.requests import RequestSample

FAILED = "HTTP status 500: no"


def failed(index: int, due_s: float, takes_s: float, **changed: int) -> RequestSample:
    return answer(index, due_s, takes_s, problem=FAILED, **changed)


def test_a_window_goes_from_the_first_due_to_the_last_answer() -> None:
    found = LoadWindow.of([answer(0, 1.0, 5.0), answer(1, 2.0, 1.0)])
    assert (found.begin_s, found.end_s, found.seconds, found.per_s(10)) == (1.0, 6.0, 5.0, 2.0)


def test_failures_that_come_late_do_not_lengthen_it() -> None:
    assert LoadWindow.of([answer(0, 0.0, 2.0), failed(1, 1.0, 300.0)]).seconds == 2.0


def test_failures_that_come_at_once_do_not_shorten_it() -> None:
    # The server ended after the first of three requests.
    assert LoadWindow.of([answer(0, 0.0, 1.0), failed(1, 5.0, 0.0), failed(2, 10.0, 0.0)]).seconds == 10.0


def test_a_failure_while_others_go_on_lies_within_it() -> None:
    # One at a time: the second request is sent when the first has failed.
    assert LoadWindow.of([failed(0, 0.0, 30.0), answer(1, 30.0, 2.0)]).seconds == 32.0


def test_turns_after_one_that_failed_late_do_not_lengthen_it() -> None:
    left_out = failed(2, 301.0, 0.0, turn=1)
    assert LoadWindow.of([answer(0, 0.0, 2.0), failed(1, 1.0, 300.0), left_out]).seconds == 2.0


def test_a_window_without_length_has_no_rate() -> None:
    assert LoadWindow.of([failed(0, 1.0, 1.0)]).per_s(1) == 0.0
