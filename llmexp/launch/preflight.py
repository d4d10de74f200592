"""What is certain before anything starts, on the node that runs: a combination not supported, memory that cannot suffice, other hardware."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmexp.launch.cgroup import host_memory_bytes
from llmexp.launch.ending import Ending
from llmexp.plan.memory import shortage
from llmexp.plan.run_plan import RunPlan
from llmexp.record.result import RunStatus

MIB = 1024**2


@dataclass(frozen=True)
class Device:
    """A GPU of this node as its driver names it."""

    name: str
    memory_bytes: int


def preflight(plan: RunPlan, environment: Mapping[str, Any]) -> Ending | None:
    """Return why the run need not start here, or None; `environment` is record.environment.capture()'s."""
    if plan.skip:
        return Ending(RunStatus.SKIPPED, plan.skip)
    devices = visible_devices(environment)
    elsewhere = _other_hardware(plan, devices)
    short = None if plan.config.force else _shortage(plan, () if elsewhere else devices, at_home=not elsewhere)
    if short:
        return Ending(RunStatus.SKIPPED, f"{plan.config.model.name} with {plan.method} {short}; force=true starts it all the same")
    return Ending(RunStatus.FAILED, elsewhere) if elsewhere else None


def visible_devices(environment: Mapping[str, Any]) -> list[Device]:
    """The node's GPUs that CUDA_VISIBLE_DEVICES leaves; all where it names them otherwise than by number."""
    nvidia = environment.get("nvidia") or {"devices": []}
    devices = [Device(device["name"], int(device["memory_mebibytes"]) * MIB) for device in nvidia["devices"]]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "all").split(",")
    if chosen != [""] and not all(word.strip().isdigit() for word in chosen):
        return devices
    return [devices[int(word)] for word in chosen if word and int(word) < len(devices)]


def _other_hardware(plan: RunPlan, devices: Sequence[Device]) -> str | None:
    hardware, ranks = plan.config.hardware, plan.dims.world_size
    if hardware.device == "cpu":
        return None
    wanted = f"hardware={hardware.name} is not this node's: it asks for {ranks} x {' or '.join(hardware.device_names) or 'NVIDIA GPU'}"
    if not devices:
        return f"{wanted}, and this node has no NVIDIA GPU"
    parts = [part.lower() for part in hardware.device_names]
    alien = [device.name for device in devices if parts and not any(part in device.name.lower() for part in parts)]
    if alien or len(devices) < ranks:
        return f"{wanted}, and this node has {len(devices)} x {(alien or [devices[0].name])[0]}"
    return None


def _shortage(plan: RunPlan, devices: Sequence[Device], at_home: bool) -> str | None:
    """Hold the plan's sure memory against this node's, or on another node against what the hardware's file says."""
    if plan.memory is None:
        return None
    hardware = plan.config.hardware
    host_bytes = host_memory_bytes() if at_home else hardware.host_memory_bytes
    if hardware.device == "cpu":
        return shortage(plan.memory, plan.dims.world_size, None, host_bytes)
    device_bytes = min((device.memory_bytes for device in devices), default=hardware.memory_bytes)
    # Unknown memory is taken to suffice: for `shortage`, None would mean that ranks live on the host.
    return shortage(plan.memory, plan.dims.world_size, device_bytes or plan.memory.device, host_bytes)
