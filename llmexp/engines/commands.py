"""The commands that start ranks, one a device, or one process alone; with the variables that keep them to their device."""

from __future__ import annotations

from llmexp.plan.runtime import interpreter
from llmexp.record.plan import Command
from llmexp.schema import RunConfig

# What torchrun and its like tell a rank; a program that finds them takes itself for one of several.
_OF_RANKS = (
    *(
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "ROLE_NAME",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
    ),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"),
)
# hardware=cpu means it, also where there is a GPU.
_DEVICE: dict[str, dict[str, str]] = {"cpu": {"CUDA_VISIBLE_DEVICES": ""}, "cuda": {}}


def ranks_of(config: RunConfig, processes: int, worker: str) -> Command:
    """One node's ranks of the module `worker`, by the launcher that the configuration names, but deepspeed's own."""
    nodes = config.hardware.nodes
    ranks = str(processes // nodes)
    start = {
        "spawn": ["llmexp.launch.ranks", ranks, "{node}", str(nodes), "{address}", "{port}", "-m", worker],
        "fork": ["llmexp.launch.fork_server", worker, ranks, "{port}"],
        "torchrun": ["torch.distributed.run", *_torchrun(nodes), "--nproc_per_node", ranks, "-m", worker],
        "python": [worker],
    }
    return module(config, [*start[config.engine.launcher], "{folder}"])


def module(config: RunConfig, words: list[str]) -> Command:
    """`python -m` with these words, in the ranks' environment."""
    return Command(
        argv=[interpreter(config.runtime), "-m", *words], env=rank_environment(config), unset=list(_OF_RANKS)
    )


def _torchrun(nodes: int) -> list[str]:
    """A rendezvous that is known beforehand, because the one of --standalone unpickles what anybody may write."""
    return ["--nnodes", str(nodes), "--node_rank", "{node}", "--master_addr", "{address}", "--master_port", "{port}"]


def rank_environment(config: RunConfig) -> dict[str, str]:
    """Variables of every rank; those of the hardware's file win."""
    name = config.hardware.network_interface
    interface = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), name) if name else {}
    return _DEVICE[config.hardware.device] | interface | config.hardware.environment
