"""Find, before anything starts, the certain reasons why a run cannot be measured on this node.

They are: an unsupported combination, too little memory, other hardware, missing libraries, no server or no compiler.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from llmexp.launch.commands import rank_environment
from llmexp.launch.compilers import uncompilable
from llmexp.launch.detect import Detected, described, is_linked
from llmexp.launch.ending import Ending, skipped
from llmexp.launch.runtime import Runtime
from llmexp.launch.server_address import key_headers
from llmexp.launch.server_answer import why_no_answer
from llmexp.launch.source import missing_model
from llmexp.machine.accelerators.here import gpus, vendor, visible_gpus
from llmexp.machine.memory import host_memory_bytes
from llmexp.record.installed import OLDEST_PYTHON, installs, version_of
from llmexp.record.plan import RunPlan
from llmexp.record.result import RunStatus
from llmexp.record.skip import Skip, SkipCode
from llmexp.registry import get_engine

CHECK_S = 60.0


def preflight(plan: RunPlan, node: Detected) -> Ending | None:
    """Return why the run need not start on this node, or None."""
    elsewhere = other_hardware(plan, node)
    if skip := certain_skip(plan, None if elsewhere else node) or missing_model(plan):
        return skipped(skip)
    unable = elsewhere or other_links(plan, node) or other_gpus(plan) or missing_libraries(plan) or no_answer(plan)
    if unable:
        return Ending(RunStatus.FAILED, unable)
    engine = get_engine(plan.config.task.name, plan.config.engine.name)
    unbuilt = missing_server(plan) or engine.unbuildable(plan) or uncompilable(plan)
    return skipped(Skip(code=SkipCode.SOFTWARE, reason=unbuilt)) if unbuilt else None


def certain_skip(plan: RunPlan, node: Detected | None = None) -> Skip | None:
    """Return why the run would be skipped at once on this node.

    Where the run is for another node (None), only the hardware's file is used.
    """
    short = None if plan.skip or plan.config.force else _certain_shortage(plan, node)
    if not short:
        return plan.skip
    return Skip(code=SkipCode.MEMORY, reason=f"{short}; force=true starts it anyway")


def other_hardware(plan: RunPlan, node: Detected) -> str | None:
    """Say that the plan is for hardware which this node does not have, or None."""
    hardware, ranks = plan.config.hardware, plan.ranks_per_node
    if hardware.device == "cpu":
        return None
    wanted = (
        f"hardware={hardware.name} does not match this node: it needs {ranks} x "
        f"{' or '.join(hardware.device_names) or 'GPU'}"
    )
    if not node.device_name:
        return f"{wanted}, and no GPU is visible here"
    alien = bool(hardware.device_names) and node.device_name not in hardware.device_names
    return f"{wanted}, and this node has {node.devices} x {node.device_name}" if alien or node.devices < ranks else None


def other_links(plan: RunPlan, node: Detected) -> str | None:
    """Say that GPUs which hardware files know with and without NVLink are here as the plan's file has them not.

    A single GPU of a node takes no link, and a file need not say how its GPUs are linked.
    """
    hardware, device_name = plan.config.hardware, node.device_name
    if plan.devices_per_node == 1 or not hardware.interconnect or device_name not in hardware.device_names:
        return None
    files = [(name, file) for name, file in described().items() if device_name in file.get("device_names", ())]
    names = {is_linked(file): name for name, file in files if file.get("interconnect")}
    if set(names) != {True, False}:
        return None
    made_by, wanted = vendor(), is_linked(hardware.model_dump())
    here = bool(made_by and made_by.linked())
    if wanted == here:
        return None
    if wanted:
        return f"hardware={hardware.name} has NVLink, and no GPU here is linked by it: set hardware={names[here]}"
    if rank_environment(plan.config).get("NCCL_P2P_DISABLE") == "1":
        return None
    return (
        f"hardware={hardware.name} has no NVLink, and GPUs here are linked by it: set hardware={names[here]}, or "
        "switch it off: NVreg_NvLinkDisable=1 of the driver leaves PCIe's peer access, and "
        "'+hardware.environment.NCCL_P2P_DISABLE=\"1\"' takes that too"
    )


def other_gpus(plan: RunPlan) -> str | None:
    """Say that DeepSpeed's launcher would take other GPUs than those that are chosen here, or None.

    It removes the variable that chooses among them, and counts from the node's first GPU on.
    """
    config, ranks = plan.config, plan.ranks_per_node
    if config.engine.launcher != "deepspeed" or config.hardware.device == "cpu":
        return None
    made_by = vendor()
    if made_by is None or [gpu.index for gpu in visible_gpus()[:ranks]] == [gpu.index for gpu in gpus()[:ranks]]:
        return None
    return (
        f"engine.launcher=deepspeed ignores {made_by.chooses}={os.environ.get(made_by.chooses, '')} and "
        f"takes this node's first {ranks}: set engine.launcher=spawn"
    )


def missing_libraries(plan: RunPlan) -> str | None:
    """Say which modules the plan's ranks import that its runtime lacks, or None."""
    config = plan.config
    found = Runtime(plan).installed
    if found.error:
        return f"runtime={config.runtime.name} does not start: {found.error}"
    if version_of(found.python) < OLDEST_PYTHON:
        return (
            f"runtime={config.runtime.name} is Python {found.python}; "
            f"llmexp's ranks need {'.'.join(map(str, OLDEST_PYTHON))} or later"
        )
    if not found.missing:
        return None
    missing = ", ".join(dict.fromkeys(found.missing)) + (
        "" if config.runtime.plain else f" in runtime={config.runtime.name}"
    )
    wanted_by = f"engine={config.engine.name} with {plan.requested}"
    return (
        f"{wanted_by} needs {missing}: {installs(get_engine(config.task.name, config.engine.name).extras)}, torch first"
    )


def no_answer(plan: RunPlan) -> str | None:
    """Say why the server that the run needs, and that somebody else started, cannot be asked from this node, or None.

    Raises ConfigError for a key that cannot be sent.
    """
    server = plan.outside_server
    why = why_no_answer(server.url, server.path, key_headers()) if server else None
    return f"{server.key}={why}" if server and why else None


def missing_server(plan: RunPlan) -> str | None:
    """Say why the server that the plan's ranks would start cannot start here, and how it is installed; None if it can.

    It is a skip and no failure, because a sweep over engines goes on with those that there are.
    """
    config = plan.config
    engine = get_engine(config.task.name, config.engine.name)
    software, found = engine.server_software(config), Runtime(plan).server
    if software and (why := _why_failed(software.check)):
        return f"engine={engine.name} cannot {software.does} here: {why}: {software.installed_by}"
    if not software or not (found.error or found.missing):
        return None
    within = f" in engine.python={software.python}" if software.python else ""
    lacks = (
        f"engine.python={software.python} does not start: {found.error}"
        if found.error
        else (f"{', '.join(found.missing)} not installed{within}")
    )
    return f"engine={engine.name} cannot {software.does} here, {lacks}: {software.installed_by}"


def _why_failed(command: Sequence[str]) -> str | None:
    """Return what a command says that fails, in its last line; None where it succeeds, or there is none."""
    if not command:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip().splitlines()
    return (said[-1] if said else f"{command[0]} ends with exit code {done.returncode}") if done.returncode else None


def _certain_shortage(plan: RunPlan, node: Detected | None) -> str | None:
    """Compare the plan's certain memory with this node's, or, for another node (None), with the hardware's file."""
    hardware, ranks = plan.config.hardware, plan.ranks_per_node
    if plan.memory is None:
        return None
    host_bytes = host_memory_bytes() if node else hardware.host_memory_bytes
    if hardware.device == "cpu":
        return plan.memory.shortage(ranks, None, host_bytes)
    device_bytes = (node.memory_bytes if node else None) or hardware.memory_bytes
    # Unknown memory is assumed to suffice: there, None would mean that ranks live on the host.
    return plan.memory.shortage(ranks, device_bytes or plan.memory.device, host_bytes)
