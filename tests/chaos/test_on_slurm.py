"""Faults of a cluster, on a real one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from patience import HANG_S

from chaos.cluster import missing
from chaos.surroundings import ROOT

FAULTS = 5


@pytest.mark.slurm
def test_a_cluster_that_breaks_loses_nothing() -> None:
    if lacking := missing():
        pytest.skip(f"a SLURM cluster needs {', '.join(lacking)}: make slurm-test installs it, as root")
    command = [sys.executable, "-m", "chaos", "--faults", str(FAULTS), "--seed", "112", "--only", "slurm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "controller killed" in last
    assert last.endswith("), 4 runs, 0 losses")


@pytest.mark.skipif(not missing(), reason="a SLURM can be brought up here")
def test_where_no_cluster_can_be_brought_up_its_faults_are_refused_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--only", "slurm"], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 2
    assert "it needs" in done.stderr.splitlines()[-1]
