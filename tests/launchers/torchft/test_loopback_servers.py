"""Nobody outside of the machine reaches the servers of torchft."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from patience import HANG_S

CODE = """
import json
from datetime import timedelta

import psutil
from torchft.process_group import ProcessGroupDummy
from torchft.coordination import LighthouseServer

from llmexp.launchers.torchft.loopback_servers import manager_on_loopback
from llmexp.launchers.torchft.loopback_store import served_store

lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1)
store, port = served_store()
place = {"rank": 0, "world_size": 1, "store_addr": "127.0.0.1", "store_port": port}
manager = manager_on_loopback(
    timedelta(minutes=10),
    pg=ProcessGroupDummy(0, 1),
    load_state_dict=None,
    state_dict=None,
    min_replica_size=1,
    lighthouse_addr="http://127.0.0.1:" + lighthouse.address().rpartition(":")[2],
    **place,
)
heard = [one.laddr.ip for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN]
print(json.dumps([heard, manager._checkpoint_transport.address()]))
"""


@pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed: pip install '.[torchft]'")
def test_the_lighthouse_the_manager_and_the_weights_are_on_the_loopback_alone() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    heard, weights = json.loads(done.stdout.splitlines()[-1])
    assert heard == ["127.0.0.1"] * 4, "the store, the lighthouse, the manager and the weights"
    assert weights.startswith("http://127.0.0.1:")
