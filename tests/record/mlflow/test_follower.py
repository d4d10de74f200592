"""How the process that follows a run goes about failures, and how much it computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from llmexp.errors import RecordError
from llmexp.record.mlflow import follower


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def follow(send: Callable[[], bool], times: int) -> None:
    left: Iterator[int] = iter(range(times))
    follower.follow(send, lambda: next(left, None) is not None, "tiny_Naive_1")


def test_a_failure_is_said_once_and_tried_again_ever_later_until_it_works(
    pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([RecordError("down")] * 7 + [None, None, OSError("gone")])

    def send() -> bool:
        if (error := next(answers)) is not None:
            raise error
        return True

    follow(send, times=10)
    assert capsys.readouterr().err.splitlines() == [
        "llmexp: tiny_Naive_1 is not seen in MLflow while it goes on: down; it is copied when it ends"
    ]
    every_s = follower.EVERY_S
    assert pauses[:2] == [2 * every_s, 4 * every_s]
    assert max(pauses) == pauses[6] == follower.LONGEST_PAUSE_S
    assert pauses[7:] == [every_s, every_s, 2 * every_s]


def test_it_computes_for_a_small_share_of_the_time(pauses: list[float]) -> None:
    def send() -> bool:
        end_s = time.process_time() + 0.1
        while time.process_time() < end_s:
            pass
        return True

    follow(send, times=2)
    assert pauses[0] == follower.EVERY_S, "the first batch imports MLflow"
    assert pauses[1] >= 0.1 / follower.LARGEST_CPU_SHARE
