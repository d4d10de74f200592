"""The lines are as NCCL 2.18 to 2.27 writes them, of several machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmexp.launchers.rank.communication import communication, log_connections, nccl_connections

NVSWITCH = """
node1:27223:27908 [1] NCCL INFO NCCL version 2.27.3+cuda12.9
node1:27223:27908 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/IB [RO]; OOB ib0:10.0.0.1<0>
node1:27223:27908 [1] NCCL INFO NVLS multicast support is available on dev 1 (NVLS_NCHANNELS 16)
node1:27223:27908 [1] NCCL INFO Channel 03/0 : 1[1] -> 0[0] via P2P/CUMEM
node1:27223:27908 [1] NCCL INFO Channel 04/0 : 1[1] -> 0[0] via P2P/CUMEM
node1:27223:27908 [1] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
node1:27223:27908 [1] NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, \
2 p2p channels per peer
"""
TWO_NODES = """
node2:2017630:2017699 [5] NCCL INFO Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3/GDRDMA
node2:2017630:2017700 [4] NCCL INFO Channel 03/0 : 13[5] -> 4[4] [receive] via NET/IB/0/GDRDMA
node2:2017630:2017697 [7] NCCL INFO Channel 00/0 : 7[7] -> 6[6] via P2P/direct pointer/read
node2:2017630:2017697 [7] NCCL INFO 16 coll channels, 0 collnet channels, 0 nvls channels, 16 p2p channels, \
2 p2p channels per peer
"""
CONSUMER = """
box:919:1150 [0] NCCL INFO Could not enable P2P between dev 1(=41000) and dev 0(=1000)
box:919:1150 [0] NCCL INFO Channel 00 : 0[1000] -> 1[41000] via SHM/direct/direct
box:926:1151 [1] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3
box:926:1151 [1] NCCL INFO Channel 01 : 1[41000] -> 0[1000] via P2P/IPC comm 0x7f6c74000e00 nRanks 02
"""


@pytest.mark.parametrize(
    ("log", "transports", "nvls_channels"),
    [
        (NVSWITCH, {"P2P/CUMEM": 2}, 16),
        (TWO_NODES, {"NET/IB/GDRDMA": 2, "P2P/direct pointer/read": 1}, 0),
        (CONSUMER, {"NET/Socket": 1, "P2P/IPC": 1, "SHM/direct/direct": 1}, None),
        ("step 1\ndownloaded via NET/IB", None, None),
    ],
)
def test_transports_are_counted_from_nccls_log(
    log: str, transports: dict[str, int] | None, nvls_channels: int | None
) -> None:
    assert nccl_connections(log.splitlines()) == {"transports": transports, "nvls_channels": nvls_channels}


def test_all_ranks_logs_of_the_folder_count(tmp_path: Path) -> None:
    (tmp_path / "nccl.node1.27223.log").write_text(NVSWITCH)
    (tmp_path / "nccl.node2.2017630.log").write_text(TWO_NODES)
    found = communication("nccl", tmp_path)
    assert found["transports"] == {"NET/IB/GDRDMA": 2, "P2P/CUMEM": 2, "P2P/direct pointer/read": 1}


def test_where_a_user_has_nccl_write_to_the_ranks_output_it_is_read_there(tmp_path: Path) -> None:
    (tmp_path / "log.0.txt").write_text(CONSUMER)
    assert communication("nccl", tmp_path)["transports"]["SHM/direct/direct"] == 1


@pytest.mark.parametrize("own", [None, "WARN"])
def test_a_users_own_nccl_debug_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None) -> None:
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "")  # so that what is set below goes after the test
        monkeypatch.delenv(name)
    if own:
        monkeypatch.setenv("NCCL_DEBUG", own)
    log_connections(tmp_path)
    assert os.environ["NCCL_DEBUG"] == (own or "INFO")
    assert os.environ.get("NCCL_DEBUG_FILE") == (None if own else f"{tmp_path}/nccl.%h.%p.log")
