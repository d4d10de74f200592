"""The whole program on two nodes: two commands that share the outputs folder and a port, each with its own /tmp.

They stand beside one node's run.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_S

from llmexp.record.folder import find_runs

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
RUN = [
    sys.executable,
    "-m",
    "llmexp",
    "model=tiny",
    "hardware=cpu",
    "method=Z3",
    "measure=smoke",
    "measure.profile=false",
    "precision=fp32",
    "tracking=none",
    "parallelism.dp=2",
]


def test_two_nodes_train_as_one_does_and_each_tells_what_disturbs_it(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meet = [
            "hardware.nodes=2",
            "hardware.network_interface=lo",
            "node.address=127.0.0.1",
            f"node.port={probe.getsockname()[1]}",
        ]
    nodes = [
        start([*RUN, *meet, f"node.rank={rank}", f"sweep.outputs={tmp_path}"], tmp_path / f"node{rank}")
        for rank in (1, 0)
    ]
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as hog:
        try:
            for node in nodes:
                said, _ = node.communicate(timeout=HANG_S)
                assert node.returncode == 0, said.decode()
        finally:
            hog.kill()
    alone = ["engine.launcher=fork", f"sweep.outputs={tmp_path}", "sweep.name=alone"]
    assert subprocess.run([*RUN, *alone], capture_output=True).returncode == 0
    one, two = sorted(
        (run.result() for run in find_runs(tmp_path)), key=lambda result: len(result.environment.get("other_nodes", ()))
    )
    assert (one.processes, two.processes, two.environment["other_nodes"]) == (
        2,
        2,
        [f"node 1 ({socket.gethostname()})"],
    )
    assert two.environment["communication"]["interfaces"] == ["lo"]
    contended = [
        reason.partition("contention: ")[0]
        for reason in (doubt.words for doubt in two.stability.reasons)
        if "contention: other processes took" in reason
    ]
    assert contended == ["", "node 1: "]
    for loss in ("first_loss", "final_loss"):
        assert two.metrics[loss].mean == pytest.approx(one.metrics[loss].mean, rel=1e-6)


def start(command: list[str], temporary: Path) -> subprocess.Popen[bytes]:
    temporary.mkdir()
    return subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
