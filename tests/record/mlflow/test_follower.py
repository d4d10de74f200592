"""How the process that follows a run goes about failures, and how much it computes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from patience import HANG_S

from llmexp.errors import RecordError
from llmexp.record.mlflow import follower


def follow(send: Callable[[], bool], times: int) -> list[float]:
    """Follow so many times, and return the pauses."""
    left, pauses = iter(range(times)), []
    follower.follow(send, lambda: next(left, None) is not None, "tiny_Naive_1", lambda seconds: pauses.append(seconds))
    return pauses


def test_a_failure_is_said_once_and_tried_again_ever_later_until_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([RecordError("down")] * 7 + [None, None, OSError("gone")])

    def send() -> bool:
        if (error := next(answers)) is not None:
            raise error
        return True

    pauses = follow(send, times=10)
    assert capsys.readouterr().err.splitlines() == [
        "llmexp: tiny_Naive_1 is not seen in MLflow while it goes on: down; it is copied when it ends"
    ]
    every_s = follower.EVERY_S
    assert pauses[:2] == [2 * every_s, 4 * every_s]
    assert max(pauses) == pauses[6] == follower.LONGEST_PAUSE_S
    assert pauses[7:] == [every_s, every_s, 2 * every_s]


def test_it_computes_for_a_small_share_of_the_time() -> None:
    def send() -> bool:
        end_s = time.process_time() + 0.1
        while time.process_time() < end_s:
            pass
        return True

    pauses = follow(send, times=2)
    assert pauses[0] == follower.EVERY_S, "the first batch imports MLflow"
    assert pauses[1] >= 0.1 / follower.LARGEST_CPU_SHARE


# While a callback runs, as of a library, an error that a signal's handler raises would be printed and lost.
SENDING = """
import signal, sys
from llmexp.record.mlflow import follower

class Told:
    def __del__(self):
        print(flush=True)
        sys.stdin.readline()

def send():
    Told()
    return True

follower.follow(send, lambda: True, "", follower._ended_by(signal.SIGTERM))
"""


def test_it_ends_when_it_is_told_so_at_any_moment() -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", SENDING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout
    started.stdout.readline()
    started.terminate()
    _, said = started.communicate("\n", timeout=HANG_S)
    assert (started.returncode, said) == (0, "")
