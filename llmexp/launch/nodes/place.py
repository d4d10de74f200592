"""Determine which machine of a run this is, and where the machines meet.

The configuration decides, else the SLURM job around this process.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from llmexp.errors import ConfigError, LlmexpError
from llmexp.schema import RunConfig

PORT = 29400
# Two jobs that share a first machine must not meet at the same port.
JOB_PORTS = range(20000, 29000)


class NodeError(LlmexpError):
    """A machine of the run did not come, or cannot do its part."""


@dataclass(frozen=True)
class Place:
    """Machine `node` of `nodes`; the others find machine 0 at address and port."""

    node: int = 0
    nodes: int = 1
    address: str = "127.0.0.1"
    port: int = PORT


def place_of(config: RunConfig) -> Place:
    """Return this machine's place in a run.

    Raises ConfigError where a run needs several machines and nothing says which one this is.
    """
    nodes, said = config.hardware.nodes, config.node
    if nodes == 1 and said.rank:
        raise ConfigError(f"node.rank={said.rank}: hardware.nodes=1, so the only machine is 0: set hardware.nodes")
    if nodes == 1:
        return Place()
    rank = said.rank if said.rank is not None else _slurm_rank(nodes)
    if rank is None:
        raise ConfigError(
            f"hardware.nodes={nodes}: start it on each of them, "
            "with node.rank=0 (1, ...) and node.address=<host of 0>, or in a SLURM job"
        )
    if rank >= nodes:
        raise ConfigError(f"node.rank={rank}: hardware.nodes={nodes} are numbered 0 to {nodes - 1}")
    address = said.address or _slurm_first()
    if address is None:
        raise ConfigError(f"node.rank={rank}: node.address=<host name or address of machine 0> is missing")
    return Place(rank, nodes, address, said.port or _slurm_port() or PORT)


def _slurm_rank(nodes: int) -> int | None:
    """Return SLURM_NODEID where the job has as many machines as the run, else None."""
    here = os.environ.get("SLURM_NODEID")
    return int(here) if here is not None and os.environ.get("SLURM_JOB_NUM_NODES") == str(nodes) else None


def _slurm_first() -> str | None:
    machines = os.environ.get("SLURM_JOB_NODELIST")
    if machines is None:
        return None
    try:
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", machines], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"the first of SLURM's {machines} is not known ({error}): set node.address") from None
    return answer.split()[0]


def _slurm_port() -> int | None:
    job = os.environ.get("SLURM_JOB_ID", "")
    return JOB_PORTS[int(job) % len(JOB_PORTS)] if job.isdigit() else None
