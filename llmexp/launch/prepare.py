"""Prepare a node once before a plan's ranks start: fetch weights, build ops, set the environment of all repeats."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from llmexp.errors import ConfigError
from llmexp.launch.compilers import compiler_variables
from llmexp.launch.display import say
from llmexp.launch.runtime import Runtime
from llmexp.machine.processor import usable_cores
from llmexp.record.installed import version_of
from llmexp.record.plan import RunPlan
from llmexp.registry import get_engine

# The variable of torch's allocator, by its older and its newer name.
_ALLOCATOR, _RENAMED_IN = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), (2, 9)
# torch rounds pinned memory up to powers of two. Larger blocks than this, such as ZeRO's state on the host, are not
# rounded, nor kept when they are freed. Older versions refuse the word.
_EXACTLY_PINNED, _EXACTLY_PINNED_FROM = "pinned_max_cached_size_mb:1024", (2, 13)
_FETCHER = ("-m", "llmexp.launchers.models.hub")
_LOOK_S = 10.0


def prepare(plan: RunPlan, log: Path) -> dict[str, str]:
    """Bring what the ranks need to this node, print the progress, and return their environment.

    `log` is the log of the fetching. Raises ConfigError or BuildError where the node cannot be prepared.
    """
    _fetch_weights(plan, log)
    built = get_engine(plan.config.task.name, plan.config.engine.name).prepare(plan)
    return environment(plan, built | compiler_variables(plan))


def environment(plan: RunPlan, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the ranks' environment.

    It is this process's own, the cores divided among the ranks, then the variables of the runtime, `extra` and the
    plan's command.
    """
    own = {name: value for name, value in os.environ.items() if name not in plan.command.unset}
    # PYTHONSAFEPATH keeps a psutil.py in the working directory from being imported.
    return {
        **own,
        "PYTHONSAFEPATH": "1",
        **_threads(plan),
        **_interfaces(plan),
        **_allocator(plan),
        **plan.config.runtime.environment,
        **extra,
        **plan.command.env,
    }


def _interfaces(plan: RunPlan) -> dict[str, str]:
    """Return variables that keep the ranks of one node on the loopback interface, unless they are set."""
    loopback = "lo" if sys.platform == "linux" else "lo0"
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if plan.config.hardware.nodes == 1 else ()
    return {name: loopback for name in names if name not in os.environ}


def _allocator(plan: RunPlan) -> dict[str, str]:
    """Return the variable that lets CUDA's allocator grow its segments, unless a user has set one of its own.

    Without it, memory that is free in pieces of other sizes is a reason to run out of memory. Large blocks of pinned
    memory have the size that the plan counts.
    """
    if plan.config.hardware.device != "cuda" or any(name in os.environ for name in _ALLOCATOR):
        return {}
    torch = Runtime(plan).installed.distributions.get("torch")
    version, (older, newer) = version_of(torch) if torch else (), _ALLOCATOR
    settings = ["expandable_segments:True", *[_EXACTLY_PINNED] * (version >= _EXACTLY_PINNED_FROM)]
    return {newer if version >= _RENAMED_IN else older: ",".join(settings)}


def _threads(plan: RunPlan) -> dict[str, str]:
    threads = plan.config.measure.threads_per_rank
    if threads is None and plan.config.hardware.device == "cuda" and "OMP_NUM_THREADS" in os.environ:
        return {}
    if threads is None:
        threads = max(1, usable_cores() // plan.ranks_per_node)
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))


def _fetch_weights(plan: RunPlan, log: Path) -> None:
    """Fetch what a hub name needs and this node's cache lacks, and print the progress.

    Raises ConfigError in one line where that fails.
    """
    model = plan.model_to_fetch
    if model is None or Path(model.path).expanduser().is_dir():
        return
    runtime, log = Runtime(plan), log.absolute()
    say(f"looking for {model.path} in the Hugging Face cache and on its hub ...")
    words = [runtime.python, *_FETCHER, model.path, *(["code"] if model.trust_remote_code else [])]
    with runtime.start(words, log, {**os.environ, **plan.config.runtime.environment}) as fetcher:
        while not fetcher.ends_within(_LOOK_S):
            say(_last_line(log))
        code = fetcher.stop()
    if code:
        raise ConfigError(_last_line(log) or f"model.path={model.path} could not be fetched: see {log}")


def _last_line(log: Path) -> str:
    """Return the last line, or a progress bar's present state: the bar goes to the line's start for each state."""
    lines = [line.strip() for line in log.read_text(errors="replace").replace("\r", "\n").splitlines()]
    return next((line for line in reversed(lines) if line), "")
