"""The variables of every rank."""

from __future__ import annotations

from planning import make_plan

NODES = ("hardware=cpu", "hardware.nodes=2", "hardware.network_interface=eth7", "parallelism.dp=4")


def test_ranks_of_several_nodes_meet_on_the_interface_that_was_named() -> None:
    environment = make_plan(*NODES, "hardware.environment={MINE: yes}").command.env
    assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "eth7"
    assert environment["MINE"] == "yes"


def test_peer_access_of_the_rtx4090_is_switched_off_for_servers_alone() -> None:
    served, trained = (
        make_plan(f"task={task}", "model=7b", "hardware=rtx4090", "hardware.environment={MINE: yes}").command.env
        for task in ("serve", "pretrain")
    )
    assert (served["NCCL_P2P_DISABLE"], served["MINE"], trained["MINE"]) == ("1", "yes", "yes")
    assert "NCCL_P2P_DISABLE" not in trained


def test_the_hardwares_own_variables_take_precedence() -> None:
    assert (
        make_plan(*NODES, "hardware.environment={NCCL_SOCKET_IFNAME: ib0}").command.env["NCCL_SOCKET_IFNAME"] == "ib0"
    )
