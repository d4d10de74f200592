"""What can break, by class. A fault returns what heals it, None where nothing is left to heal, or raises MissedError."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from chaos import ranks

if TYPE_CHECKING:
    from chaos.episode import Episode
    from chaos.tracker import Network, Server

Heal = Callable[[], None]
Fault = Callable[["Episode"], Heal | None]
FIND_WITHIN_S = 4.0


class MissedError(Exception):
    """There was nothing to break: the sweep had ended."""


def _signal_to(number: signal.Signals, *words: str) -> Fault:
    """Send a signal to one of the processes whose command line has these words, at some moment of its life."""

    def inject(episode: Episode) -> None:
        _signalled(episode, number, words)

    return inject


def _stopped(*words: str) -> Fault:
    """Stop such a process as a debugger does, and let it go on later, where it is still there."""

    def inject(episode: Episode) -> Heal:
        process = _signalled(episode, signal.SIGSTOP, words)

        def go_on() -> None:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

        return go_on

    return inject


def _signalled(episode: Episode, number: signal.Signals, words: Sequence[str]) -> psutil.Process:
    deadline = time.monotonic() + FIND_WITHIN_S
    while not (found := episode.surroundings.processes(*words)):
        if time.monotonic() > deadline or not episode.driver.lives:
            raise MissedError
        time.sleep(0.02)
    time.sleep(episode.random.uniform(0, 0.4))
    process: psutil.Process = episode.random.choice(found)
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        raise MissedError from None
    return process


def _signal_to_driver(number: signal.Signals) -> Fault:
    def inject(episode: Episode) -> None:
        if not episode.driver.lives:
            raise MissedError
        episode.driver.send(number)

    return inject


def _second_driver(episode: Episode) -> None:
    episode.start_beside()


def _disk_full(episode: Episode) -> Heal:
    episode.disk.fill(episode.surroundings)
    return lambda: episode.disk.free(episode.surroundings)


def _disk_read_only(episode: Episode) -> Heal:
    episode.disk.forbid_writing(episode.surroundings)
    return lambda: episode.disk.allow_writing(episode.surroundings)


def _files_answer(number: int) -> Fault:
    def inject(episode: Episode) -> Heal:
        episode.surroundings.error_file.write_text(str(number))
        return episode.surroundings.error_file.unlink

    return inject


FAULTS: Mapping[str, Fault] = {
    "rank killed": _signal_to(signal.SIGKILL, "chaos.ranks", ranks.RANK),
    "rank exits": _signal_to(ranks.LEAVES, "chaos.ranks", ranks.RANK),
    "rank raises": _signal_to(ranks.RAISES, "chaos.ranks", ranks.RANK),
    "rank out of memory": _signal_to(ranks.RUNS_OUT_OF_MEMORY, "chaos.ranks", ranks.RANK),
    "launcher killed": _signal_to(signal.SIGKILL, "chaos.ranks", ranks.LAUNCHER),
    "keeper killed": _signal_to(signal.SIGKILL, "llmexp.launch.keeper"),
    "rank stopped": _stopped("chaos.ranks", ranks.RANK),
    "launcher stopped": _stopped("chaos.ranks", ranks.LAUNCHER),
    "keeper stopped": _stopped("llmexp.launch.keeper"),
    "driver SIGKILL": _signal_to_driver(signal.SIGKILL),
    "driver SIGTERM": _signal_to_driver(signal.SIGTERM),
    "driver SIGINT": _signal_to_driver(signal.SIGINT),
    "driver SIGHUP": _signal_to_driver(signal.SIGHUP),
    "second driver": _second_driver,
    "disk full": _disk_full,
    "disk read-only": _disk_read_only,
    "quota reached": _files_answer(errno.EDQUOT),
    "stale file handle": _files_answer(errno.ESTALE),
    "input/output error": _files_answer(errno.EIO),
}


def of_the_tracker(server: Server, network: Network) -> Mapping[str, Fault]:
    """What can break of a tracking server and on the way to it."""

    def killed(episode: Episode) -> Heal:
        server.kill()
        return server.start

    def hangs(episode: Episode) -> Heal:
        server.send(signal.SIGSTOP)
        return lambda: server.send(signal.SIGCONT)

    def turned(state: str) -> Fault:
        def inject(episode: Episode) -> Heal:
            network.state = state
            return lambda: setattr(network, "state", "well")

        return inject

    return {
        "server killed": killed,
        "server hangs": hangs,
        "network cut": turned("cut"),
        "network stalls": turned("stalled"),
        "network slow": turned("slow"),
    }
