from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmexp.launch.nodes.peers import PeerNodes
from llmexp.launch.nodes.place import Place
from llmexp.launch.ranks import LOOPBACK, listening

# From linux/in.h, since Linux 6.3: the ports from which the kernel chooses for this socket, the last one above.
IP_LOCAL_PORT_RANGE = 51
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is not held")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port at which the ranks of a repeat are to meet."""
    with PeerNodes(Place(), 1.0, tmp_path).started(tmp_path / "repeat.0", "stack") as places:
        yield places["port"]


@pytest.fixture
def other(port: int) -> Iterator[socket.socket]:
    """Another program's socket, for which the kernel can choose no other port."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", port << 16 | port))
        except OSError:
            pytest.skip("this kernel chooses from one range for all")
        yield one


def test_the_ranks_can_listen_where_they_are_to_meet(port: int) -> None:
    with listening(LOOPBACK, port) as store, socket.create_connection((LOOPBACK, port)), store.accept()[0] as rank:
        assert rank.getsockname()[1] == port


def test_no_server_that_takes_any_port_gets_it(other: socket.socket) -> None:
    with pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, 0))


def test_no_connection_comes_from_it(other: socket.socket) -> None:
    with listening(LOOPBACK, 0) as server, pytest.raises(OSError, match="assign"):
        other.connect(server.getsockname())
