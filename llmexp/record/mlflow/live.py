"""Follow a run in MLflow while it goes on: a small process of its driver sends what the run's folder has gained.

A process can be killed in the middle of a request, takes no turn of the driver's interpreter, and leaves the
environment alone that ranks inherit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmexp.record.folder import RunFolder
from llmexp.record.mlflow.store import resolve_uri
from llmexp.record.plan import RunPlan
from llmexp.record.tracking_uri import SERVERS

FOLLOWER = (sys.executable, "-m", "llmexp.record.mlflow.follower")
# A store's lock and its half-made tables want an orderly end; a request that hangs does not get more.
ENDS_WITHIN_S = 1.0


def is_followed(plan: RunPlan, outputs: Path) -> bool:
    """Tell whether the run's steps go to its tracker while it goes on."""
    tracking = plan.config.tracking
    if tracking.name == "none" or plan.skip:
        return False
    if tracking.live != "auto":
        return tracking.live
    return plan.config.hardware.device != "cpu" and resolve_uri(tracking, outputs).startswith(
        tuple(f"{scheme}://" for scheme in SERVERS)
    )


@contextmanager
def followed(plan: RunPlan, folder: RunFolder) -> Iterator[None]:
    """Let a process follow the run until the block ends, where the plan wants it; it never raises an error."""
    process = _start(plan, folder) if is_followed(plan, folder.path.resolve().parents[1]) else None
    try:
        yield
    finally:
        if process:
            _end(process)


def _start(plan: RunPlan, folder: RunFolder) -> subprocess.Popen[bytes] | None:
    """Start the process; None where this machine starts no more. A pipe hides a password, a command line shows it."""
    told = {"folder": str(folder.path.absolute()), "tracking": plan.config.tracking.model_dump(mode="json")}
    with suppress(OSError):
        process = subprocess.Popen(FOLLOWER, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        with suppress(OSError), process.stdin as pipe:  # type: ignore[union-attr]
            pipe.write(json.dumps(told).encode())
        return process
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_WITHIN_S)
        return
    process.kill()
    process.wait()
