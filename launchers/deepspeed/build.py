"""DeepSpeed's compiled ops: the driver builds them before any rank starts, visibly, and keeps them for this machine.

Ranks never compile: a rank that is killed while it compiles would leave a lock on which the next run hangs silently.
An op in the folder is complete, because it was renamed into place. A build that was killed leaves only its own scratch
folder, and a lock that ended with its holder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from llmexp.errors import BuildError
from llmexp.launch.code import cache_folder
from llmexp.launch.compilers import build_tools
from llmexp.launch.display import say
from llmexp.launch.runtime import Runtime
from llmexp.launch.spawn import agent_log
from llmexp.launchers.deepspeed import BESIDE_DISK_OP, DISK_OP, OP_LIBRARY_VARIABLE
from llmexp.machine.processor import compiled_for
from llmexp.record.duration import duration
from llmexp.record.lock import acquire_waiting
from llmexp.record.plan import RunPlan

BUILDER = ("-m", "llmexp.launchers.deepspeed.ops")
# async_io is eleven files that include torch, of 45 s of a core each, and other work may share the cores.
BUILD_TIMEOUT_S = 3600.0
BUILT_AGAINST = ("torch", "deepspeed")


def needed_op(plan: RunPlan) -> str | None:
    """Return the op that DeepSpeed would compile for this plan, None where it needs none.

    DeepSpeed's own Adam needs one, a host version with offload, and so do states on a disk; torch's optimizers need
    none.
    """
    if plan.config.engine.name != "deepspeed":
        return None
    if plan.engine_config["zero_optimization"].get("offload_optimizer", {}).get("device") == "nvme":
        return DISK_OP
    if "optimizer" not in plan.engine_config:
        return None
    return "cpu_adam" if "offload_optimizer" in plan.engine_config["zero_optimization"] else "fused_adam"


def unbuildable(plan: RunPlan) -> str | None:
    """Say what this machine lacks to build an op that the plan needs and that is not built yet, or None."""
    op = needed_op(plan)
    missing = _missing(plan, op) if op else []
    if not missing:
        return None
    lacking = " and no ".join(missing)
    if op == DISK_OP:
        return f"states on a disk need DeepSpeed's {op} compiled, and this machine has no {lacking}"
    return (
        f"DeepSpeed's own optimizer needs its {op} compiled, and this machine has no {lacking}: set optimizer=adamw, "
        f"which compiles nothing"
    )


def prepare_ops(plan: RunPlan) -> dict[str, str]:
    """Build the op that the plan needs unless it is built; return variables for the ranks; raises BuildError."""
    op = needed_op(plan)
    if op is None:
        return {}
    if reason := unbuildable(plan):
        raise BuildError(reason)
    library = _library(plan, op)
    if not library.exists():
        with _alone_in(library.parent):
            if not library.exists():
                _build(Runtime(plan), op, library)
    return {OP_LIBRARY_VARIABLE: str(library)}


def _missing(plan: RunPlan, op: str) -> list[str]:
    if _library(plan, op).exists():
        return []
    tools = build_tools(Runtime(plan).installed, gpu=_has_kernels(plan, op), amd=plan.config.hardware.is_amd)
    compiler = Runtime(plan).installed.compiler
    libaio = {"libaio.h (libaio-dev, or libaio-devel)": compiler is None or _has_header(compiler, "libaio.h")}
    return [name for name, found in (tools | libaio if op == DISK_OP else tools).items() if not found]


def _has_header(compiler: str, name: str) -> bool:
    words = [compiler, "-E", "-x", "c++", "-include", name, os.devnull]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _build(runtime: Runtime, op: str, library: Path) -> None:
    say(f"building DeepSpeed's {op}, once per machine; this takes some minutes ...")
    started_s = time.monotonic()
    for killed in library.parent.glob("build.*"):
        shutil.rmtree(killed, ignore_errors=True)
    # A fresh TORCH_EXTENSIONS_DIR cannot hold a lock that another process left.
    scratch = library.parent / f"build.{os.getpid()}"
    with runtime.start(
        [runtime.python, *BUILDER, op], agent_log(scratch), {**os.environ, "TORCH_EXTENSIONS_DIR": str(scratch)}
    ) as builder:
        in_time = builder.ends_within(BUILD_TIMEOUT_S)
        code = builder.stop()
    log = agent_log(scratch).replace(library.with_suffix(".log"))
    if not in_time or code:
        raise BuildError(
            f"DeepSpeed's {op} "
            f"{'could not be built' if in_time else f'was not built within {duration(BUILD_TIMEOUT_S)}'}: see {log}"
        )
    if op == DISK_OP:
        (scratch / BESIDE_DISK_OP / f"{BESIDE_DISK_OP}.so").replace(library.with_stem(BESIDE_DISK_OP))
    (scratch / op / library.name).replace(library)
    shutil.rmtree(scratch)
    say(f"built {op} in {time.monotonic() - started_s:.0f} s")


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with its holder; print a line while another driver builds."""
    with ExitStack() as stack:
        try:
            stack.enter_context(
                acquire_waiting(
                    folder / ".builders", lambda: say("waiting for another llmexp that is building DeepSpeed's ops ...")
                )
            )
        except OSError as error:
            where = f"{folder} ({error.strerror})"
            raise BuildError(
                f"cannot store DeepSpeed's ops in {where}: set XDG_CACHE_HOME to a writable folder"
            ) from None
        yield


def _library(plan: RunPlan, op: str) -> Path:
    """Return the path of the built op.

    The folder depends on Python, torch, DeepSpeed, the image, the CPU (ops are compiled for the present one) and the
    CUDA toolkit.
    """
    found = Runtime(plan).installed
    parts = [
        found.cache_tag,
        *(found.distributions.get(name, "") for name in BUILT_AGAINST),
        plan.config.runtime.image or "",
        compiled_for(),
    ]
    if _has_kernels(plan, op):
        parts += [plan.config.hardware.name, str(found.hipcc if plan.config.hardware.is_amd else found.nvcc)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_folder() / "deepspeed_ops" / digest / f"{op}.so"


def _has_kernels(plan: RunPlan, op: str) -> bool:
    return plan.config.hardware.device == "cuda" and op in ("fused_adam", DISK_OP)
