"""Checks of the machine for `llmexp doctor`: folders, ports, SLURM, memory, the processor's clock."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

from llmexp.doctor.finding import Finding
from llmexp.launch.detect import detect
from llmexp.machine import bf16
from llmexp.machine.accelerators.here import undriven
from llmexp.machine.host_load import load_averages
from llmexp.machine.memory import available_memory_bytes, host_memory_bytes, machine_memory_bytes
from llmexp.machine.processor import governor, usable_cores
from llmexp.record.digits import GIB
from llmexp.record.filesystem import ELSEWHERE, filesystem, nearest_existing, unsafe_for_sqlite

LEAST_DISK_BYTES, AMPLE_DISK_BYTES = 1 * GIB, 10 * GIB
AMPLE_MEMORY_BYTES = 4 * GIB
# Of the cores: one busy process on two of them is not yet a crowd, but half of what a run of two ranks needs.
BUSY_SHARE = 0.5
UI_PORT = 5000
SLURM_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "sacct", "scontrol")


def check_hardware() -> Finding:
    """Say which hardware `hardware=auto` selects."""
    found, cards = detect(), undriven()
    said = f"auto is {found.hardware}: {found.devices} x {found.device_name or 'CPU rank'}"
    return Finding("warn", "hardware", f"{said}; {cards}") if cards else Finding("ok", "hardware", said)


def check_bf16() -> Finding:
    """Say which precision `precision=auto` selects without a GPU, and what bf16 would cost there."""
    lacks = bf16.cpu_lacks()
    if not lacks:
        return Finding("ok", "bf16", f"this processor multiplies it: precision=auto is {bf16.NATIVE} on hardware=cpu")
    return Finding(
        "ok", "bf16", f"{lacks}: precision=auto is {bf16.ELSE} on hardware=cpu; in bf16 {bf16.slower_on_cpu()}"
    )


def check_folder(what: str, folder: Path, remedy: str) -> Finding:
    """Check that a folder, which need not exist yet, can be written to and has enough space."""
    there = nearest_existing(folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            free_bytes = shutil.disk_usage(there).free
    except OSError as error:
        return Finding("fail", what, f"{folder} cannot be written ({error.strerror}): {remedy}")
    said = f"{folder}: {free_bytes / GIB:.1f} GiB free"
    if free_bytes < LEAST_DISK_BYTES:
        return Finding("fail", what, f"{said}, too little: free some, or {remedy}")
    return (
        Finding("warn", what, f"{said}; traces and datasets may fill it")
        if free_bytes < AMPLE_DISK_BYTES
        else Finding("ok", what, said)
    )


def check_store(outputs: Path) -> Finding:
    """Check that MLflow's SQLite store can lie in outputs."""
    server = os.environ.get("MLFLOW_TRACKING_URI")
    if server and not server.startswith("sqlite:"):
        return Finding("ok", "store", "MLFLOW_TRACKING_URI names a server")
    if unsafe := unsafe_for_sqlite(outputs):
        return Finding("warn", "store", f"{unsafe}; runs with tracking=mlflow are refused: {ELSEWHERE}")
    return Finding(
        "ok", "store", f"{outputs} is on {filesystem(nearest_existing(outputs))}, which can hold MLflow's SQLite store"
    )


def check_ports() -> Finding:
    """Check that ranks can meet on 127.0.0.1 and that the default port of `llmexp ui` is free."""
    if not _can_bind(0):
        return Finding(
            "fail", "ports", "no port of 127.0.0.1 can be opened, and ranks meet there: is the loopback interface up?"
        )
    if not _can_bind(UI_PORT):
        return Finding("warn", "ports", f"127.0.0.1:{UI_PORT} is in use: choose another port with llmexp ui --port")
    return Finding("ok", "ports", f"127.0.0.1:{UI_PORT} is free for llmexp ui, and ranks can open others")


def check_slurm() -> Finding:
    """Check that either all of SLURM's commands are installed or none of them."""
    missing = [name for name in SLURM_COMMANDS if not shutil.which(name)]
    if len(missing) == len(SLURM_COMMANDS):
        return Finding("ok", "slurm", "none here: runs start on this node")
    if missing:
        return Finding(
            "warn", "slurm", f"no {', '.join(missing)} on PATH: load SLURM's module, or install its client commands"
        )
    return Finding("ok", "slurm", f"{', '.join(SLURM_COMMANDS)}")


def check_memory() -> Finding:
    """Report the host memory that processes here may use, and how much of it is free."""
    limit_bytes, total_bytes = host_memory_bytes(), machine_memory_bytes()
    free_bytes = min(limit_bytes, available_memory_bytes())
    limited = f", of this control group; the machine has {total_bytes / GIB:.1f}" if limit_bytes < total_bytes else ""
    said = f"{free_bytes / GIB:.1f} GiB free of {limit_bytes / GIB:.1f}{limited}"
    if free_bytes < AMPLE_MEMORY_BYTES:
        return Finding(
            "warn",
            "memory",
            f"{said}: ranks that import torch take about 1 GiB each; end other programs or ask for more",
        )
    return Finding("ok", "memory", said)


def check_load() -> Finding:
    """Check that nothing else computes here, by the load average of the last minute."""
    load, cores = load_averages()[0], usable_cores()
    said = f"load average {load:.1f} on {cores} core{'s' * (cores > 1)}"
    if load > BUSY_SHARE * cores:
        return Finding(
            "warn",
            "load",
            f"{said}: other programs are computing here, which would disturb a measurement; wait for them or end them",
        )
    return Finding("ok", "load", said)


def check_governor() -> Finding:
    """Check that the processor's clock stays high while ranks wait for each other."""
    found = governor()
    if found is None:
        return Finding("ok", "governor", "not shown, as in most virtual machines and containers")
    if found == "performance":
        return Finding("ok", "governor", found)
    return Finding(
        "warn",
        "governor",
        f"{found}: step times may scatter; cpupower frequency-set -g performance (as root) steadies them",
    )


def _can_bind(port: int) -> bool:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
