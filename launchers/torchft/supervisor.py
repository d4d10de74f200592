"""Starts the replicas, lets them be killed, starts them again as the plan's recovery says, and sums up.

It serves torchft's lighthouse, or the store in which torch's replicas meet, because both have to outlive replicas.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmexp.launchers.torchft.account import settle
from llmexp.launchers.torchft.lives import (
    HEARTBEAT,
    KILLS,
    KILLS_LEFT,
    LIFE,
    LIGHTHOUSE,
    LOOPBACK,
    RECOVERY,
    read_steps,
)
from llmexp.launchers.torchft.loopback_store import served_store
from llmexp.record.process import die_with_parent
from llmexp.training.plan.training_plan import TrainingPlan

WORKER = "llmexp.launchers.torchft.worker"
# Signals that Python ignores and would pass on as ignored.
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
# A replica that makes itself heard, but asks for no quorum, holds up the others at most so long.
JOIN_TIMEOUT_MS = 60_000


class DeathError(Exception):
    """A replica ended that was not to end."""


class Replicas:
    """The processes of all replicas, by process id, and how often each was started."""

    def __init__(self, plan: TrainingPlan, folder: Path) -> None:
        self._plan, self._folder, self._size = plan, folder, plan.dims.dp
        self._heals = plan.engine_config[RECOVERY] == "heal"
        self._meeting = Lighthouse(plan) if self._heals else Stores()
        self._kills_left: list[int] = list(plan.engine_config[KILLS])
        self._lives, self._dies = [0] * self._size, self._size - 1
        self._running: dict[int, int] = {}

    def run(self) -> None:
        """Start all, and go on until all have ended well; raises DeathError where one has not."""
        self._start(range(self._size))
        while self._running:
            pid, status = os.wait()
            code, rank = os.waitstatus_to_exitcode(status), self._running.pop(pid)
            if code and self._explains(rank):
                self._recover()
            elif code:
                raise DeathError(f"rank {rank} ended with exit code {code}")

    def stop(self) -> None:
        """Kill all that run."""
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        while self._running:
            self._running.pop(os.wait()[0])

    def _explains(self, rank: int) -> bool:
        """Tell whether the death that was asked for is why this replica ended; torch's others end with the one."""
        steps = read_steps(self._folder, self._dies)
        died = bool(steps) and steps[-1].ended_s is None and steps[-1].life == self._lives[self._dies] - 1
        return died and (rank == self._dies or not self._heals)

    def _recover(self) -> None:
        print(f"replica {self._dies} was killed, as step {self._kills_left.pop(0)} asked for", flush=True)
        if self._heals:
            self._start([self._dies])
            return
        self.stop()
        # They say that a peer is gone, which was the point.
        for failure in self._folder.glob("failure.*.json"):
            failure.unlink()
        self._start(range(self._size))

    def _start(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            env = {**os.environ, **self._meeting.variables(self._lives[rank]), **self._place(rank)}
            words = [sys.executable, "-m", WORKER, str(self._folder)]
            self._running[os.posix_spawn(sys.executable, words, env, setsigdef=IGNORED)] = rank
            self._lives[rank] += 1

    def _place(self, rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "LOCAL_WORLD_SIZE": str(self._size),
            LIFE: str(self._lives[rank]),
            KILLS_LEFT: str(self._kills_left if rank == self._dies else []),
        }


class Lighthouse:
    """torchft's lighthouse, on the loopback."""

    def __init__(self, plan: TrainingPlan) -> None:
        from torchft.coordination import LighthouseServer

        self._server: Any = LighthouseServer(
            bind=f"{LOOPBACK}:0",
            min_replicas=1,
            join_timeout_ms=JOIN_TIMEOUT_MS,
            heartbeat_timeout_ms=round(1000 * plan.engine_config[HEARTBEAT]),
        )

    def variables(self, life: int) -> dict[str, str]:
        """Return where replicas find it."""
        _, _, port = self._server.address().rpartition(":")
        return {LIGHTHOUSE: f"http://{LOOPBACK}:{port}"}


class Stores:
    """The stores in which torch's replicas meet, as behind torchrun's agent: a new one for each life.

    An older one holds the addresses of the dead.
    """

    def __init__(self) -> None:
        self._served: list[tuple[Any, int]] = []

    def variables(self, life: int) -> dict[str, str]:
        """Return where replicas find the store of this life."""
        if life == len(self._served):
            self._served.append(served_store())
        return {
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(self._served[life][1]),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }


def main(folder: Path) -> int:
    """Supervise one repeat; return the exit code."""
    die_with_parent()
    plan = TrainingPlan.read(folder.parent / "plan.json")
    replicas = Replicas(plan, folder)
    try:
        replicas.run()
    except DeathError as death:
        print(death, flush=True)
        replicas.stop()
        return 1
    return settle(plan, folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
