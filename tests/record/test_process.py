from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
from patience import HANG_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="both ties are Linux's own")

CHILD = (
    "import time; from llmexp.record.process import die_with_parent; die_with_parent(); print('tied', flush=True); "
    "time.sleep(1000)"
)
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE, text=True, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(1000)
"""
ADOPTER = """
import os, subprocess, sys
from llmexp.record.process import adopt_orphans
adopt_orphans()
middle = "import subprocess; print(subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL).pid)"
orphan = int(subprocess.run([sys.executable, "-c", middle], stdout=subprocess.PIPE, check=True).stdout)
import psutil
print(psutil.Process(orphan).ppid() == os.getpid())
psutil.Process(orphan).kill()
"""


def test_killed_parent_takes_its_child_along():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    assert psutil.wait_procs([child], timeout=HANG_S)[1] == []


def test_orphans_are_adopted():
    assert (
        subprocess.run(
            [sys.executable, "-c", ADOPTER], stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_S
        ).stdout
        == "True\n"
    )
