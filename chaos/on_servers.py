"""A sweep of task=serve: loads on servers that end, hang and answer wrongly, and clients that are killed."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from chaos.episode import Episode
from chaos.faults import FAULTS, Fault, Heal, MissedError, signal_to, stopped
from chaos.faulty_server import OF_ANSWERS, RUNS_OUT

CLIENT, SERVER, LAUNCHER = "llmexp.launchers.serving.worker", "chaos.faulty_server", "llmexp.launch.ranks"
# Each run's prompts have another length, and all the same model.
PROMPTS = "8,9,10,11"


@dataclass
class ServingEpisode(Episode):
    """An episode whose runs each start a server and put two loads on it."""

    @property
    def runs(self) -> tuple[str, ...]:
        """The words of the sweep's runs."""
        server = f"{{python}} -m {SERVER} {{port}} --told {self._told}"
        return (
            "task=serve",
            "model=tiny",
            "hardware=cpu",
            "engine=command",
            f"engine.options.command='{server}'",
            "engine.options.token_ids=true",
            f"serve.prompt.tokens={PROMPTS}",
            "serve.output.tokens=16",
            "serve.rate=max",
            "serve.concurrency=4",
            "serve.requests=60",
            "serve.silent_timeout_s=10",
            "measure.threads_per_rank=1",
        )

    @property
    def possible(self) -> Mapping[str, Fault]:
        """The faults of any host but those of training's ranks, and those of servers and their clients."""
        others = {name: fault for name, fault in super().possible.items() if name not in _of_ranks()}
        return {**others, **_of_processes(), **{f"server {fault}": self._answers(fault) for fault in OF_ANSWERS}}

    @property
    def out_of_memory(self) -> int:
        """How often a server was made to run out of memory."""
        return self.faults["server out of memory"]

    @property
    def _told(self) -> str:
        return str(self.surroundings.scratch / "told")

    def _answers(self, fault: str) -> Fault:
        """Return the fault that all servers answer so for a while."""

        def inject(episode: Episode) -> Heal:
            if not episode.driver.lives:
                raise MissedError
            told = episode.surroundings.scratch / "told"
            told.write_text(fault)

            def heal() -> None:
                with suppress(FileNotFoundError):
                    told.unlink()

            return heal

        return inject


def _of_ranks() -> set[str]:
    return {name for name in FAULTS if name.startswith(("rank ", "launcher "))}


def _of_processes() -> Mapping[str, Fault]:
    return {
        "server killed in a load": signal_to(signal.SIGKILL, SERVER),
        "server stopped": stopped(SERVER),
        "server out of memory": signal_to(RUNS_OUT, SERVER),
        "client killed": signal_to(signal.SIGKILL, CLIENT),
        "client terminated": signal_to(signal.SIGTERM, CLIENT),
        "client stopped": stopped(CLIENT),
        "client's launcher killed": signal_to(signal.SIGKILL, LAUNCHER),
    }
