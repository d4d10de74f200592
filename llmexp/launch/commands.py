"""The commands that start ranks, one per device or one process alone, and the environment variables of the ranks."""

from __future__ import annotations

from llmexp.launch.command_prefix import interpreter
from llmexp.record.plan import Command
from llmexp.schema import RunConfig

# Variables that torchrun and similar launchers set; a program that finds them assumes that it is one of several ranks.
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
# With hardware=cpu no GPU is used, even where there is one.
_DEVICE: dict[str, dict[str, str]] = {"cpu": {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}, "cuda": {}}


def ranks_of(config: RunConfig, processes: int, worker: str) -> Command:
    """Return the command that starts one node's ranks of the module `worker`, by any launcher except DeepSpeed's."""
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
    """Return the command `python -m` with these words, in the ranks' environment."""
    return Command(
        argv=[interpreter(config.runtime), "-m", *words], env=rank_environment(config), unset=list(_OF_RANKS)
    )


def _torchrun(nodes: int) -> list[str]:
    """Return the options of a rendezvous that is known beforehand: --standalone's unpickles what anybody may write."""
    return ["--nnodes", str(nodes), "--node_rank", "{node}", "--master_addr", "{address}", "--master_port", "{port}"]


def rank_environment(config: RunConfig) -> dict[str, str]:
    """Return the variables of every rank, and so of a server; those of the hardware's file take precedence."""
    name = config.hardware.network_interface
    interface = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), name) if name else {}
    served = config.hardware.serving_environment if config.task.name == "serve" else {}
    return _DEVICE[config.hardware.device] | interface | config.hardware.environment | served
