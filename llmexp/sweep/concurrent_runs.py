"""Measure several runs of a local sweep at a time, on disjoint GPUs, each in its own process.

A run that would disturb another one gets the machine to itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from llmexp.launch.display import say
from llmexp.machine.accelerators.here import choosing_variable
from llmexp.machine.processor import usable_cores
from llmexp.record.plan import RunPlan

# A rank feeds its GPU with one core; its process has more threads than that.
CORES_PER_DEVICE = 2
ALONE = (sys.executable, "-m", "llmexp.sweep.alone")
# The figures of these presets are published: a neighbor would share the machine's power, its fans and the host's
# memory bandwidth.
ALONE_BY_PROTOCOL = ("paper", "adaptive")
Run = Callable[[RunPlan, Sequence[str]], bool]


def may_stand_beside(plan: RunPlan) -> bool:
    """Say whether a run may share the machine with others.

    It must leave host memory and slow links alone, must not use a preset for publication, and must have enough cores.
    DeepSpeed's launcher gives every run the same first GPUs.
    """
    hardware = plan.config.hardware
    if plan.config.engine.launcher == "deepspeed":
        return False
    if hardware.device != "cuda" or hardware.nodes > 1 or plan.loads_host:
        return False
    if plan.config.measure.name in ALONE_BY_PROTOCOL:
        return False
    own_links = plan.devices == 1 or str(hardware.interconnect).startswith("NVLink")
    return own_links and usable_cores() >= CORES_PER_DEVICE * hardware.devices_per_node


def worth_it(plans: Sequence[RunPlan], devices: Sequence[str]) -> bool:
    """Say whether any two of these runs could be measured side by side on these devices."""
    sizes = sorted(plan.devices for plan in plans if plan.config.sweep.side_by_side and may_stand_beside(plan))
    return len(sizes) > 1 and sizes[0] + sizes[1] <= len(devices)


def run_all(plans: Sequence[RunPlan], devices: Sequence[str], run: Run | None = None) -> list[bool]:
    """Run all plans, in order as far as devices are free; a run that may not stand beside others gets all devices."""
    run, waiting, free = run or run_alone, list(enumerate(plans)), list(devices)
    done: dict[int, bool] = {}
    with ThreadPoolExecutor(len(devices)) as threads:
        working: dict[Future[bool], tuple[int, list[str]]] = {}
        while waiting or working:
            while waiting and (taken := _devices_for(waiting[0][1], free, devices)):
                number, plan = waiting.pop(0)
                free = [device for device in free if device not in taken]
                working[threads.submit(run, plan, taken[: plan.devices])] = (number, taken)
            finished, _ = wait(working, return_when=FIRST_COMPLETED)
            for future in finished:
                number, taken = working.pop(future)
                done[number], free = future.result(), free + taken
    return [done[number] for number in range(len(plans))]


def _devices_for(plan: RunPlan, free: Sequence[str], devices: Sequence[str]) -> list[str]:
    """Return the next run's devices: as many as it needs, or all so that it is alone; empty where it must wait."""
    if may_stand_beside(plan):
        return list(free[: plan.devices]) if len(free) >= plan.devices else []
    return list(devices) if len(free) == len(devices) else []


def run_alone(plan: RunPlan, devices: Sequence[str]) -> bool:
    """Measure a plan in a process that sees only these devices; its output is passed on line by line."""
    env = {**os.environ, choosing_variable(): ",".join(devices)}
    with subprocess.Popen(
        ALONE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(plan.model_dump_json())
        process.stdin.close()
        for line in process.stdout:
            say(line.rstrip())
    return process.returncode == 0
