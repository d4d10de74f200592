"""The words before a command that make it run where `runtime` says: modules, container, set-up lines, interpreter."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmexp.schema import ContainerRuntime, RuntimeConfig

# "$@" is the command itself; bash passes it to exec word by word.
EXEC = 'exec "$@"'
# Sites define `module` for login shells only; both module systems have a variable for the place of its definition.
FIND_MODULE = 'type module >/dev/null 2>&1 || . "${LMOD_PKG:-${MODULESHOME:?no module command here}}/init/bash"'


@dataclass(frozen=True)
class Needs:
    """The needs of a command in a container: folders to write and read, variables, GPUs, and a name to end it by."""

    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    gpus: bool = False
    name: str = "llmexp"


def interpreter(runtime: RuntimeConfig) -> str:
    """Return the word that starts the ranks' Python."""
    if isinstance(runtime, ContainerRuntime):
        return runtime.python
    return str(Path(runtime.python).expanduser()) if runtime.python else sys.executable


def wrap(argv: Sequence[str], runtime: RuntimeConfig, needs: Needs) -> list[str]:
    """Return the command with all words before it: modules on the host, the container, the set-up lines inside."""
    inner = _after(runtime.setup, argv) if runtime.setup else list(argv)
    held = _CONTAINERS[runtime.container](runtime, needs) + inner if isinstance(runtime, ContainerRuntime) else inner
    return _after((FIND_MODULE, shlex.join(("module", "load", *runtime.modules))), held) if runtime.modules else held


def ending(runtime: RuntimeConfig, name: str) -> list[str]:
    """Return the command that ends a container whose daemon keeps it after the client; empty without a daemon."""
    return (
        [runtime.program or "docker", "rm", "--force", name]
        if isinstance(runtime, ContainerRuntime) and runtime.container == "docker"
        else []
    )


def _after(lines: Sequence[str], argv: Sequence[str]) -> list[str]:
    # The command's words must not become arguments of the set-up lines, nor their output the command's output.
    return ["bash", "-c", "\n".join(["set -e", *lines, EXEC]), "llmexp", *argv]


def _apptainer(runtime: ContainerRuntime, needs: Needs) -> list[str]:
    binds = [*needs.writes, *(f"{folder}:{folder}:ro" for folder in needs.reads)]
    return [
        runtime.program or "apptainer",
        "exec",
        *(["--nv"] if needs.gpus else []),
        *(word for bind in binds for word in ("--bind", bind)),
        *runtime.options,
        runtime.image,
    ]


def _docker(runtime: ContainerRuntime, needs: Needs) -> list[str]:
    """Return docker's words, for the current user and in the host's namespaces.

    Ranks must find each other, be seen and signalled from outside, and leave files that belong to the user.
    """
    volumes = [*(f"{folder}:{folder}" for folder in needs.writes), *(f"{folder}:{folder}:ro" for folder in needs.reads)]
    pairs = [("--volume", volume) for volume in volumes] + [("--env", variable) for variable in needs.variables]
    return [
        *(runtime.program or "docker", "run", "--rm", "--name", needs.name),
        *("--network", "host", "--ipc", "host", "--pid", "host", "--user", f"{os.getuid()}:{os.getgid()}"),
        *(["--gpus", "all"] if needs.gpus else []),
        *(word for pair in pairs for word in pair),
        *runtime.options,
        runtime.image,
    ]


_CONTAINERS = {"apptainer": _apptainer, "docker": _docker}
