from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator

import pytest

from llmexp.record.port import HOST, Port

# From linux/in.h, since Linux 6.3: the ports from which the kernel chooses for this socket, the last one above.
IP_LOCAL_PORT_RANGE = 51
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody can listen at a port that is held")


@pytest.fixture
def port() -> Iterator[int]:
    with Port(hold=True) as held:
        yield held.number


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


def test_whom_it_is_held_for_can_listen_at_it(port: int) -> None:
    server = socket.create_server((HOST, port))
    with server, socket.create_connection((HOST, port)), server.accept()[0] as accepted:
        assert accepted.getsockname()[1] == port


def test_no_server_that_takes_any_port_gets_it(other: socket.socket) -> None:
    with pytest.raises(OSError, match="in use"):
        other.bind((HOST, 0))


def test_no_connection_comes_from_it(other: socket.socket) -> None:
    with socket.create_server((HOST, 0)) as server, pytest.raises(OSError, match="assign"):
        other.connect(server.getsockname())


def test_ports_that_are_held_at_the_same_time_differ_and_are_given_to_nobody_else() -> None:
    held = [Port(hold=True) for _ in range(50)]
    others = [socket.create_server((HOST, 0)) for _ in range(50)]
    numbers = [port.number for port in held] + [other.getsockname()[1] for other in others]
    assert len(set(numbers)) == 100
    for one in (*held, *others):
        one.release() if isinstance(one, Port) else one.close()
