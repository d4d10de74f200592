from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from llmexp.machine import processes

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="told by Linux alone")


@LINUX
def test_this_process_began_after_the_machine_and_before_now():
    assert processes.start_ticks(os.getpid()) > processes.start_ticks(1) or os.getpid() == 1
    assert processes.started_at_s(os.getpid()) == pytest.approx(psutil.Process().create_time())
    assert processes.kernel().keys() == {"boot_id", "pid_namespace"}


def test_a_process_that_has_ended_is_a_zombie_and_then_nothing():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        held = psutil.Process(child.pid)
        assert not processes.is_zombie(child.pid)
        assert processes.held_bytes(held) > 0
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.is_zombie(child.pid)
    assert processes.is_zombie(child.pid)
    assert processes.start_ticks(child.pid) is None
    assert processes.held_bytes(held) == 0


@pytest.mark.parametrize("named", [10**30, "one"])
def test_what_no_process_can_be_is_not_hidden(named):
    assert not processes.is_hidden(named)


def test_without_the_kernels_files_no_boot_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "BOOT", tmp_path / "boot_id")
    assert processes.kernel() == {}


@LINUX
def test_the_kernel_says_which_signals_a_process_handles(monkeypatch):
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert processes.handles(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not processes.handles(os.getpid(), signal.SIGUSR2)
    assert not processes.handles(2**22 + 1, signal.SIGUSR2)
