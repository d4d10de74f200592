from __future__ import annotations

import hashlib
import sys
import threading

import pytest
from patience import HANG_S

from llmexp.machine.own_threads import await_others_asleep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what threads do")


@pytest.fixture
def busy() -> threading.Thread:
    """Start a thread that computes for about a second, without Python's lock."""
    work = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 2_000_000))
    work.start()
    return work


def test_it_waits_until_the_others_have_nothing_to_do(busy: threading.Thread) -> None:
    assert await_others_asleep(limit_s=HANG_S)
    assert not busy.is_alive()


def test_threads_that_sleep_are_not_waited_for() -> None:
    woken = threading.Event()
    waiting = threading.Thread(target=woken.wait)
    waiting.start()
    assert await_others_asleep(limit_s=HANG_S)
    assert waiting.is_alive()
    woken.set()
    waiting.join()


def test_a_thread_that_never_sleeps_is_waited_for_no_longer_than_the_limit() -> None:
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)

    spinning = threading.Thread(target=spin)
    spinning.start()
    assert not await_others_asleep(limit_s=0.05)
    ended.set()
    spinning.join()
