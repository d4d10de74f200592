"""The store where ranks meet listens where they were told, whoever has opened its port."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from llmexp.record.port import HOST
from llmexp.record.process import STORE_FD

SERVE = """
import psutil, socket, os, sys
from llmexp.launchers.rank.meeting import serve_store
if sys.argv[1] == "handed over":
    opened = socket.create_server((os.environ["MASTER_ADDR"], 0))
    os.environ["MASTER_PORT"] = str(opened.getsockname()[1])
    os.environ[STORE_FD] = str(opened.detach())
else:
    with socket.create_server((os.environ["MASTER_ADDR"], 0)) as free:
        os.environ["MASTER_PORT"] = str(free.getsockname()[1])
serve_store()
print({one.laddr.ip for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN})
""".replace("STORE_FD", repr(STORE_FD))


@pytest.mark.parametrize("port", ["handed over", "opened by the rank"])
def test_the_store_of_one_node_listens_on_its_loopback_interface_alone(port: str) -> None:
    told = {"MASTER_ADDR": HOST, "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run([sys.executable, "-c", SERVE, port], env=os.environ | told, capture_output=True, text=True)
    assert done.stdout == f"{{'{HOST}'}}\n", done.stderr
