from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from llmexp.launch.nodes.peers import PeerNodes
from llmexp.launch.nodes.place import Place
from llmexp.launch.ranks import LOOPBACK, listening


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the port is only free at present")
def test_the_port_where_ranks_meet_is_theirs_until_the_repeat_ends(tmp_path: Path) -> None:
    with PeerNodes(Place(), 1.0, tmp_path).started(tmp_path / "repeat.0", "stack") as places:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, places["port"]))
        listening(LOOPBACK, places["port"]).close()
    with socket.socket() as other:
        other.bind((LOOPBACK, places["port"]))
