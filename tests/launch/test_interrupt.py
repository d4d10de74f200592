from __future__ import annotations

import os
import signal

import pytest

from llmexp.launch.interrupt import HungUp, signals_interrupt


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_interrupts_unless_that_is_ignored(ignored: bool) -> None:
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    interrupted = False
    try:
        with signals_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
    except HungUp:
        interrupted = True
    finally:
        signal.signal(signal.SIGHUP, earlier)
    assert interrupted is not ignored
