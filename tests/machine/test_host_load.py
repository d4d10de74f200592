import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import psutil
import pytest
from patience import HANG_S

from llmexp.machine import host_load
from llmexp.machine.host_load import CoresInUse

SPIN = "import time\nwhile time.process_time() < 1: pass"


def test_memory_in_use_is_a_share_of_the_machines(monkeypatch):
    monkeypatch.setattr(host_load, "used_memory_bytes", lambda: 4e9)
    monkeypatch.setattr(host_load, "machine_memory_bytes", lambda: 16e9)
    told = host_load.load()
    assert (told["system_memory_usage_megabytes"], told["system_memory_usage_percentage"]) == (4000, 25)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A host of three cores, of which this process may use the last two.

    Its counters stand still but for what is added, core by core.
    """
    still = psutil.cpu_times(percpu=True)[0]

    def show(**added_s: Sequence[float]) -> None:
        cores = [
            still._replace(**{name: getattr(still, name) + each[core] for name, each in added_s.items()})
            for core in range(3)
        ]
        monkeypatch.setattr(psutil, "cpu_times", lambda percpu: cores)

    monkeypatch.setattr(host_load, "bound_core_numbers", lambda: {1, 2})
    show()
    return show


def test_what_a_hypervisor_took_is_no_work_of_other_processes(host):
    cores = CoresInUse()
    host(steal=(0, 1, 1))
    threading.Event().wait(0.1)  # against which milliseconds, to which the interval is rounded, are nothing
    found = cores.since_last()
    assert found["cpu_other_cores"] == 0
    assert found["cpu_stolen_cores"] * found["interval_s"] == pytest.approx(2, rel=0.1)


def test_work_on_cores_that_are_not_this_process_s_disturbs_nothing(host):
    cores = CoresInUse()
    host(user=(100, 3, 0), steal=(100, 0, 0))
    threading.Event().wait(0.1)
    found = cores.since_last()
    assert found["cpu_other_cores"] * found["interval_s"] == pytest.approx(3, rel=0.1)
    assert found["cpu_stolen_cores"] == 0


def test_a_container_that_numbers_its_cores_otherwise_counts_all(host, monkeypatch):
    monkeypatch.setattr(host_load, "bound_core_numbers", lambda: {64, 65})
    cores = CoresInUse()
    host(user=(1, 1, 1))
    threading.Event().wait(0.1)
    found = cores.since_last()
    assert found["cpu_other_cores"] * found["interval_s"] == pytest.approx(3, rel=0.1)


def test_work_of_the_own_tree_is_told_from_others_work():
    """Each spins for a CPU second; the orphan's parent, through which it would belong to this tree, has ended."""
    cores = CoresInUse()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    own = cores.since_last()
    assert own["cpu_own_cores"] * own["interval_s"] > 0.95
    start = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SPIN!r}], "
        "stdout=subprocess.DEVNULL).pid)"
    )
    orphan = int(subprocess.run([sys.executable, "-c", start], check=True, capture_output=True, text=True).stdout)
    psutil.wait_procs([process for process in psutil.process_iter() if process.pid == orphan])
    other = cores.since_last()
    assert other["cpu_other_cores"] * other["interval_s"] > 0.8
    assert other["cpu_own_cores"] * other["interval_s"] < 0.8


SPIN_AND_WAIT = "import sys, time\nwhile time.process_time() < 1: pass\nprint(flush=True)\nsys.stdin.read()"


def test_a_process_that_is_known_late_brings_no_earlier_work_and_takes_none_away() -> None:
    """A rank of another node on this host, as two commands of one user have it."""
    late: list[psutil.Process] = []
    cores = CoresInUse(elsewhere=lambda: late)
    start = [
        *(sys.executable, "-c"),
        f"import subprocess, sys; made = subprocess.Popen([sys.executable, '-c', {SPIN_AND_WAIT!r}], "
        "stdin=sys.stdin, stdout=subprocess.PIPE); made.stdout.readline(); print(made.pid, flush=True)",
    ]
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        stray = psutil.Process(int(parent.stdout.readline()))
        parent.wait()
        cores.since_last()
        threading.Event().wait(0.2)
        late.append(stray)
        known = cores.since_last()
        assert known["cpu_own_cores"] * known["interval_s"] < 0.5
        parent.stdin.close()
        psutil.wait_procs([stray], timeout=HANG_S)
    ended = cores.since_last()
    assert 0 <= ended["cpu_own_cores"] * ended["interval_s"] < 0.5


def test_the_own_processes_are_the_tree(tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= CoresInUse().own_pids
    cores = CoresInUse()
    assert child.pid not in cores.own_pids
    assert os.getppid() not in cores.own_pids
