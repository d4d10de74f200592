from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from llmexp.machine.process_tree import ProcessTree, descendants

# It computes until it has used a tenth of a second, says so, and waits.
BUSY = "import time\nwhile time.process_time() < 0.1: pass\nprint('done', flush=True)\ninput()"


def child() -> subprocess.Popen[str]:
    words = [sys.executable, "-c", BUSY]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n")


def test_the_tree_knows_what_its_processes_hold_and_compute_and_forgets_no_time() -> None:
    tree = ProcessTree(os.getpid(), again_s=0)
    before = len(tree.living())
    process = child()
    assert process.stdout
    process.stdout.readline()
    assert psutil.Process(process.pid) in tree.living()
    held, computed_s = tree.resident_bytes(), tree.computed_s()
    assert held > 2**20
    assert computed_s >= 0.09
    end(process)
    assert len(tree.living()) == before
    assert tree.computed_s() >= computed_s


def test_who_is_there_is_looked_up_again_when_one_has_ended_or_time_is_over() -> None:
    first = child()
    tree = ProcessTree(os.getpid(), again_s=3600)
    known = tree.living()
    second = child()
    assert tree.living() == known, "a new one is not looked for yet"
    end(first)
    assert {process.pid for process in tree.living()} & {first.pid, second.pid} == {second.pid}
    end(second)


def test_a_process_that_has_ended_has_no_tree() -> None:
    process = child()
    end(process)
    assert descendants(process.pid) == []
    tree = ProcessTree(process.pid)
    assert (tree.living(), tree.resident_bytes(), tree.computed_s()) == ([], 0, 0)


def test_a_zombie_is_not_alive() -> None:
    process = child()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(process.pid) not in descendants(os.getpid())
    process.communicate()
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(process.pid)
