"""How ranks are started, one a device: by torchrun, forked, or one process without either; with the variables that keep them to their device."""

from __future__ import annotations

from llmexp.plan.dims import ParallelDims
from llmexp.plan.run_plan import Command
from llmexp.plan.runtime import interpreter
from llmexp.schema import RunConfig

# What torchrun and its like tell a rank; a program that finds them takes itself for one of several.
_OF_RANKS = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"),
)
# hardware=cpu means it, also where there is a GPU.
_DEVICE: dict[str, dict[str, str]] = {"cpu": {"CUDA_VISIBLE_DEVICES": ""}, "cuda": {}}


def torchrun(config: RunConfig, dims: ParallelDims, worker: str) -> Command:
    """One node's ranks of the module `worker`; several nodes meet where the launcher says."""
    if config.engine.launcher == "fork":
        return _fork(config, dims, worker)
    nodes = config.hardware.nodes
    meet = ["--nnodes", str(nodes), "--node_rank", "{node}", "--master_addr", "{address}", "--master_port", "{port}"]
    start = [interpreter(config.runtime), "-m", "torch.distributed.run", *(meet if nodes > 1 else ["--standalone"])]
    return Command(argv=[*start, "--nproc_per_node", str(dims.world_size // nodes), "-m", worker, "{folder}"], env=rank_environment(config))


def _fork(config: RunConfig, dims: ParallelDims, worker: str) -> Command:
    start = [interpreter(config.runtime), "-m", "llmexp.launch.fork_server", worker]
    return Command(argv=[*start, str(dims.world_size), "{port}", "{folder}"], env=rank_environment(config))


def plain(config: RunConfig, worker: str) -> Command:
    """One process of the module `worker`, as if nothing but Python had started it."""
    return Command(argv=[interpreter(config.runtime), "-m", worker, "{folder}"], env=rank_environment(config), unset=list(_OF_RANKS))


def rank_environment(config: RunConfig) -> dict[str, str]:
    """Variables of every rank; those of the hardware's file win."""
    name = config.hardware.network_interface
    interface = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), name) if name else {}
    return _DEVICE[config.hardware.device] | interface | config.hardware.environment
